// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// cache is the folder of built programs. It is this process's alone until
// closed, so that of two at once the second finds what the first built.
type cache struct {
	dir  string
	lock *os.File
}

func openCache() (*cache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find cache folder: %w", err)
	}
	dir := filepath.Join(base, "temper", "kube", kubernetes.version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cache folder: %w", err)
	}
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return &cache{dir, lock}, nil
}

func (c *cache) close() { c.lock.Close() }

func (c *cache) path(p program) string { return filepath.Join(c.dir, p.name) }

func (c *cache) has(p program) bool {
	_, err := os.Stat(c.path(p))
	return err == nil
}

// build puts the program in its place whole or not at all.
func (c *cache) build(ctx context.Context, p program) error {
	start := time.Now()
	fmt.Fprintf(os.Stderr, "%s %s: building, which takes minutes the first time\n", p.name, p.module.version)
	mod, err := p.module.goMod(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.dir, ".build-")
	if err != nil {
		return fmt.Errorf("make build folder: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644); err != nil {
		return fmt.Errorf("write go.mod: %w", err)
	}
	out := filepath.Join(dir, p.name)
	cmd := goCommand(ctx, dir, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", p.module.ldflags(), "-o", out, p.pkg)
	said := &progress{name: p.name, every: 20 * time.Second, last: start, out: os.Stderr}
	cmd.Stderr = said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run go build: %w\n%s", err, said.tail)
	}
	if err := os.Rename(out, c.path(p)); err != nil {
		return fmt.Errorf("move %s to its place: %w", p.name, err)
	}
	fmt.Fprintf(os.Stderr, "%s %s: built in %v\n", p.name, p.module.version, time.Since(start).Round(time.Second))
	return nil
}

// progress counts the packages that "go build -v" names, and keeps the last
// lines for the error.
type progress struct {
	name     string
	every    time.Duration
	last     time.Time
	packages int
	tail     []byte
	out      io.Writer
}

func (p *progress) Write(b []byte) (int, error) {
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		p.packages++
	}
	p.tail = append(p.tail, b...)
	p.tail = p.tail[max(0, len(p.tail)-4000):]
	if time.Since(p.last) >= p.every {
		p.last = time.Now()
		fmt.Fprintf(p.out, "%s: %d packages\n", p.name, p.packages)
	}
	return len(b), nil
}
