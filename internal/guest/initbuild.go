// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// initSources are the sources of process 1. A guest's own binary is built from
// them rather than being a copy of the caller, so that what runs beside a
// measured command does not change with the tool that measures.
//
//go:embed init/main.go init/setup.go wire/wire.go
var initSources embed.FS

const initModule = "module github.com/temper-sched/temper\n\ngo 1.26\n"

// resolveInit returns the path of process 1, building it on first use.
func resolveInit(ctx context.Context, log *slog.Logger) (string, error) {
	files := map[string][]byte{"go.mod": []byte(initModule)}
	parts := [][]byte{[]byte(runtime.Version()), []byte(initModule)}
	for _, name := range []string{"init/main.go", "init/setup.go", "wire/wire.go"} {
		b, err := initSources.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read source of guest init: %w", err)
		}
		files["internal/guest/"+name] = b
		parts = append(parts, b)
	}
	root, err := cacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "init", digest(parts...))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	log.InfoContext(ctx, "building guest init")
	unlock, err := lock(ctx, root, "init")
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := buildInit(ctx, files, path); err != nil {
		return "", fmt.Errorf("build guest init: %w", err)
	}
	return path, nil
}

// buildInit compiles files, whose bytes alone decide the result's.
func buildInit(ctx context.Context, files map[string][]byte, path string) error {
	dir, remove, err := tempDir("init")
	if err != nil {
		return err
	}
	defer remove()
	for name, b := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", path+".partial", "./internal/guest/init")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run go build: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.Rename(path+".partial", path)
}
