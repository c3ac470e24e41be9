// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// emulatorSource is where a QEMU and its libraries come from.
type emulatorSource struct {
	qemu string   // suite of QEMU's own packages
	libs []string // suites of its libraries, the last one preferred
}

// emulatorSources are tried in turn. The first is the version that the clock
// plugin is checked against on its oldest supported host, and needs no newer C
// library than that host's.
var emulatorSources = []emulatorSource{
	{"bookworm-backports", []string{"bookworm"}},
	{"trixie", []string{"trixie"}},
}

// emulatorPackages are QEMU's own: the x86-64 system emulator and firmware.
var emulatorPackages = []string{"qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"}

// emulator is an unpacked QEMU, kept as JSON beside it.
type emulator struct {
	Version  string            `json:"version"`
	Packages map[string]string `json:"packages"`
}

// QEMU returns the path of a QEMU system emulator for x86-64 and its version,
// fetching it on first use. The path is a small wrapper that sets the library
// path and then becomes QEMU.
func QEMU(ctx context.Context) (path, version string, err error) {
	return resolveQEMU(ctx, slog.New(slog.DiscardHandler))
}

func resolveQEMU(ctx context.Context, log *slog.Logger) (path, version string, err error) {
	e, dir, err := cached(ctx, "qemu", log, func(a *archive, dir string) (emulator, error) {
		var refused []error
		for _, src := range emulatorSources {
			e, err := src.build(ctx, a, dir)
			if err == nil {
				return e, nil
			}
			refused = append(refused, fmt.Errorf("from %s: %w", src.qemu, err))
		}
		return emulator{}, errors.Join(refused...)
	})
	if err != nil {
		return "", "", fmt.Errorf("resolve qemu: %w", err)
	}
	return filepath.Join(dir, "qemu-system-x86_64"), e.Version, nil
}

// build unpacks QEMU and its libraries into dir and checks that it starts.
func (s emulatorSource) build(ctx context.Context, a *archive, dir string) (emulator, error) {
	e := emulator{Packages: map[string]string{}}
	root := filepath.Join(dir, "root")
	own := []string{s.qemu}
	if s.qemu != s.libs[0] {
		own = append(slices.Clone(s.libs), s.qemu)
	}
	var all []*pkg
	for _, name := range emulatorPackages {
		p, err := a.newest(name, own...)
		if err != nil {
			return e, err
		}
		all = append(all, p)
	}
	libs, err := a.libraries(all, s.libs)
	if err != nil {
		return e, err
	}
	// The host's C library has to be used with the host's loader.
	libs = slices.DeleteFunc(libs, func(p *pkg) bool { return p.name == "libc6" })
	all = append(all, libs...)
	debs, err := a.fetch(ctx, all...)
	if err != nil {
		return e, err
	}
	for i, p := range all {
		if err := extract(ctx, debs[i], root); err != nil {
			return e, err
		}
		e.Packages[p.name] = p.version
	}
	if err := writeWrapper(dir); err != nil {
		return e, err
	}
	e.Version, err = qemuVersion(ctx, filepath.Join(dir, "qemu-system-x86_64"))
	return e, err
}

// writeWrapper writes the script that starts the QEMU below its own directory.
func writeWrapper(dir string) error {
	const script = `#!/bin/sh
d=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$d/root/usr/lib/x86_64-linux-gnu:$d/root/lib/x86_64-linux-gnu
QEMU_MODULE_DIR=$d/root/usr/lib/x86_64-linux-gnu/qemu
export LD_LIBRARY_PATH QEMU_MODULE_DIR
exec "$d/root/usr/bin/qemu-system-x86_64" -L "$d/root/usr/share/qemu" -L "$d/root/usr/share/seabios" "$@"
`
	if err := os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte(script), 0o755); err != nil {
		return fmt.Errorf("write qemu wrapper: %w", err)
	}
	return nil
}

// qemuVersion runs the emulator at path, which also proves that it can run.
func qemuVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("start qemu: %w: %s", err, strings.TrimSpace(string(out)))
	}
	// QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)
	f := strings.Fields(string(out))
	if len(f) < 4 {
		return "", fmt.Errorf("read qemu version: %q", out)
	}
	return f[3], nil
}

// libraries returns the library packages that those in roots depend on,
// directly or through each other, from the given suites.
func (a *archive) libraries(roots []*pkg, from []string) ([]*pkg, error) {
	seen := map[string]*pkg{}
	queue := slices.Clone(roots)
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		for _, dep := range p.depends {
			q, err := a.library(dep, from)
			if err != nil {
				return nil, fmt.Errorf("resolve dependencies of %s: %w", p.name, err)
			}
			if q != nil && seen[q.name] == nil {
				seen[q.name] = q
				queue = append(queue, q)
			}
		}
	}
	out := make([]*pkg, 0, len(seen))
	for _, p := range seen {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *pkg) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// library picks the first alternative of dep that exists, if it is a library:
// everything else (adduser, init scripts, debconf) configures a system that a
// guest is not.
func (a *archive) library(dep string, from []string) (*pkg, error) {
	alternatives := strings.Split(dep, "|")
	for _, name := range alternatives {
		if !strings.HasPrefix(name, "lib") && name != "zlib1g" {
			continue
		}
		if p, err := a.newest(name, from...); err == nil {
			return p, nil
		}
	}
	if first := alternatives[0]; strings.HasPrefix(first, "lib") && !strings.Contains(first, "perl") {
		return nil, fmt.Errorf("find package %s: not in %s", dep, strings.Join(from, ", "))
	}
	return nil, nil
}
