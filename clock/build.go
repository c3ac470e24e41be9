// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const compiler = "gcc"

//go:embed plugin/clock.c plugin/trace.c plugin/pauses.h plugin/qemu.h selfcheck
var sources embed.FS

// built is the plugin and the self-check's firmware in the cache. The key in
// their directory's name covers the sources, the compiler and QEMU's version.
type built struct {
	dir      string
	plugin   string
	firmware string
	tracer   string // the plugin with a trace, compiled when it is asked for
}

var versionPattern = regexp.MustCompile(`(\d+)\.(\d+)`)

// apiFor returns the version of QEMU's plugin API to compile for. QEMU 11.1
// changed the callbacks' arguments and dropped the older ones.
func apiFor(version string) (int, error) {
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return 0, fmt.Errorf("read QEMU version %q: %w", version, ErrUnsupported)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	switch v := major*100 + minor; {
	case v < 901:
		return 0, fmt.Errorf("choose plugin API for QEMU %d.%d, the oldest is 9.1: %w", major, minor, ErrUnsupported)
	case v < 1101:
		return 4, nil
	default:
		return 7, nil
	}
}

// build compiles what is not in the cache yet. Several processes may do so at
// once: each renames finished files into place.
func build(ctx context.Context, api int, version string) (built, error) {
	cc, err := exec.CommandContext(ctx, compiler, "--version").Output()
	if err != nil {
		return built{}, fmt.Errorf("run %s: %w: %w", compiler, ErrNoCompiler, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return built{}, fmt.Errorf("find cache directory: %w", err)
	}
	key, err := sourceKey(strconv.Itoa(api), version, string(cc))
	if err != nil {
		return built{}, err
	}
	dir := filepath.Join(cache, "temper", "clock", key)
	b := built{
		dir:      dir,
		plugin:   filepath.Join(dir, "clock.so"),
		firmware: filepath.Join(dir, "selfcheck.bin"),
		tracer:   filepath.Join(dir, "trace.so"),
	}
	if exists(b.plugin) && exists(b.firmware) {
		return b, nil
	}
	return b, b.compile(ctx, api)
}

// sourceKey is the hash of all sources and of what else shapes the result.
func sourceKey(parts ...string) (string, error) {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d %s\n", path, len(text), text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read plugin sources: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func (b built) compile(ctx context.Context, api int) error {
	return b.inWork(func(work string) error {
		for _, args := range [][]string{pluginArgs(api, "clock"), firmwareArgs(), imageArgs()} {
			if err := runIn(ctx, work, args); err != nil {
				return err
			}
		}
		return errors.Join(
			os.Rename(filepath.Join(work, "selfcheck.bin"), b.firmware),
			os.Rename(filepath.Join(work, "clock.so"), b.plugin),
		)
	})
}

// compileTracer adds the plugin that is the clock and a trace.
func (b built) compileTracer(ctx context.Context, api int) error {
	return b.inWork(func(work string) error {
		if err := runIn(ctx, work, pluginArgs(api, "trace")); err != nil {
			return err
		}
		return os.Rename(filepath.Join(work, "trace.so"), b.tracer)
	})
}

// inWork calls a function with a directory that has the sources, below b's own.
func (b built) inWork(compile func(dir string) error) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return fmt.Errorf("create plugin cache: %w", err)
	}
	work, err := os.MkdirTemp(b.dir, "build-")
	if err != nil {
		return fmt.Errorf("create build directory: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.CopyFS(work, sources); err != nil {
		return fmt.Errorf("copy plugin sources: %w", err)
	}
	return compile(work)
}

func pluginArgs(api int, name string) []string {
	return []string{
		compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden",
		// current_cpu is one of QEMU's own thread variables: reached like these.
		"-ftls-model=initial-exec",
		fmt.Sprintf("-DCLOCK_API=%d", api), "-o", name + ".so", "plugin/" + name + ".c",
	}
}

func firmwareArgs() []string {
	return []string{
		compiler, "-m32", "-std=gnu11", "-O1", "-ffreestanding", "-nostdlib", "-static",
		"-fno-pic", "-no-pie", "-fno-stack-protector", "-fcf-protection=none",
		"-fno-asynchronous-unwind-tables", "-mgeneral-regs-only",
		"-Wl,-T,selfcheck/link.ld", "-Wl,--build-id=none",
		"-o", "selfcheck.elf", "selfcheck/start.S", "selfcheck/check.c",
	}
}

func imageArgs() []string {
	return []string{"objcopy", "-O", "binary", "-j", ".text", "-j", ".reset", "selfcheck.elf", "selfcheck.bin"}
}

func runIn(ctx context.Context, dir string, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("run %s: %w: %w", args[0], ErrNoCompiler, err)
	}
	if err != nil {
		return fmt.Errorf("compile %s: %w: %s", args[len(args)-1], err, strings.TrimSpace(string(out)))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
