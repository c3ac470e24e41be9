// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// commands are the image's files: no shell, no libc, nothing else. The node
// command would double the size, and the agent answers at /status.
var commands = []string{"temper-agent"}

// file is one of an image's, in its root folder.
type file struct {
	name string
	data []byte
}

// platform is the files for one machine architecture.
type platform struct {
	arch  string
	files []file
}

func size(files []file) int {
	n := 0
	for _, f := range files {
		n += len(f.data)
	}
	return n
}

func checkSize(files []file) error {
	if n := size(files); n > maxSize {
		return fmt.Errorf("its files have %d bytes, more than %d", n, maxSize)
	}
	return nil
}

// build compiles the commands for arch. No commit, path or build id inside:
// equal source gives equal bytes. The image's tag is the version they say.
func build(ctx context.Context, arch, tag string) ([]file, error) {
	dir, err := os.MkdirTemp("", "temper-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var files []file
	for _, name := range commands {
		out := filepath.Join(dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid= -X main.release="+tag, "-o", out, "./cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s for %s: %w\n%s", name, arch, err, text)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, data})
	}
	return files, nil
}
