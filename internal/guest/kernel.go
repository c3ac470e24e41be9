// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kernelSpec is a row of the table of kernels.
type kernelSpec struct {
	name    string
	version string   // major.minor
	suites  []string // where to look, in this order
	want    schedExt
}

// kernels are the names Machine.Kernel knows. A mirror keeps few versions of a
// suite, so a row names a minor version and not a package.
var kernels = []kernelSpec{
	{"7.3", "7.3", []string{"sid", "forky", "experimental"}, schedExtGood},
	// The main kernel: it has ext_server and EXT_GROUP_SCHED.
	{"7.2", "7.2", []string{"sid", "forky", "experimental"}, schedExtGood},
	{"6.18", "6.18", []string{"trixie-backports"}, schedExtGood},
	{"6.17", "6.17", []string{"trixie-backports"}, schedExtGood},
	// The oldest supported: no cgroup_set_bandwidth, no bw_quota_us.
	{"6.16", "6.16", []string{"trixie-backports"}, schedExtGood},
	// Fixture: a kernel without sched_ext.
	{"6.12", "6.12", []string{"trixie", "bookworm-backports"}, schedExtNone},
	// Fixture: sched_ext whose kfuncs cannot be called.
	{"7.2-badbtf", "7.2", []string{"trixie-backports"}, schedExtMalformed},
}

// Kernels are the names that Machine.Kernel may have.
func Kernels() []string {
	names := make([]string, 0, len(kernels))
	for _, k := range kernels {
		names = append(names, k.name)
	}
	return names
}

// kernel is a resolved kernel. It is kept as JSON beside its vmlinux.
type kernel struct {
	Release  string   `json:"release"` // as uname -r says
	Package  string   `json:"package"`
	Version  string   `json:"version"`
	Suite    string   `json:"suite"`
	SchedExt schedExt `json:"sched_ext"`

	path string
}

// resolveKernel returns the kernel called name, fetching it on first use.
func resolveKernel(ctx context.Context, name string, log *slog.Logger) (kernel, error) {
	i := slices.IndexFunc(kernels, func(k kernelSpec) bool { return k.name == name })
	if i < 0 {
		return kernel{}, fmt.Errorf("resolve kernel %q: want one of %s", name, strings.Join(Kernels(), ", "))
	}
	spec := kernels[i]
	k, dir, err := cached(ctx, filepath.Join("kernel", spec.name), log,
		func(a *archive, dir string) (kernel, error) { return spec.build(ctx, a, dir) })
	if err != nil {
		return kernel{}, fmt.Errorf("resolve kernel %s: %w", name, err)
	}
	k.path = filepath.Join(dir, "vmlinux")
	return k, nil
}

// build tries the spec's candidates until one's BTF shows what is wanted.
func (s kernelSpec) build(ctx context.Context, a *archive, dir string) (kernel, error) {
	candidates, err := s.candidates(a)
	if err != nil {
		return kernel{}, err
	}
	var refused []error
	for _, p := range candidates {
		k, err := s.try(ctx, a, p, dir)
		if err == nil {
			return k, nil
		}
		refused = append(refused, err)
	}
	if len(refused) == 0 {
		return kernel{}, fmt.Errorf("no package of version %s in %s", s.version, strings.Join(s.suites, ", "))
	}
	return kernel{}, errors.Join(refused...)
}

// candidates are the packages that hold a kernel of this version: suites in
// the spec's order, newest first. The cloud flavour has every driver a guest
// needs built in. Debian signs a little after it builds, so the unsigned
// package may be the only one.
func (s kernelSpec) candidates(a *archive) ([]*pkg, error) {
	named := regexp.MustCompile(`^linux-(image|binary|binary-unsigned)-` + regexp.QuoteMeta(s.version) +
		`([.+-].*)?-cloud-amd64(-unsigned)?$`)
	var out []*pkg
	for _, suite := range s.suites {
		x, err := a.load(suite)
		if err != nil {
			return nil, err
		}
		var found []*pkg
		for name, v := range x {
			// From 6.19 on, linux-image-* is an empty package that depends on
			// linux-binary-*, where the kernel is.
			if p := v.newest(); named.MatchString(name) && p.size > 1<<20 {
				found = append(found, p)
			}
		}
		slices.SortFunc(found, func(a, b *pkg) int {
			if c := compareVersions(b.version, a.version); c != 0 {
				return c
			}
			return len(a.name) - len(b.name)
		})
		out = append(out, found...)
	}
	return out, nil
}

// try unpacks one candidate and checks it.
func (s kernelSpec) try(ctx context.Context, a *archive, p *pkg, dir string) (kernel, error) {
	deb, err := a.fetch(ctx, p)
	if err != nil {
		return kernel{}, err
	}
	root, remove, err := tempDir("kernel")
	if err != nil {
		return kernel{}, err
	}
	defer remove()
	if err := extract(ctx, deb[0], root); err != nil {
		return kernel{}, err
	}
	image, release, err := findImage(root)
	if err != nil {
		return kernel{}, fmt.Errorf("unpack package %s: %w", p.name, err)
	}
	vmlinux := filepath.Join(dir, "vmlinux")
	if err := extractVmlinux(ctx, image, vmlinux); err != nil {
		return kernel{}, err
	}
	major, minor := splitVersion(s.version)
	got, err := inspectBTF(vmlinux, major, minor)
	if err != nil {
		return kernel{}, err
	}
	if got != s.want {
		return kernel{}, fmt.Errorf("check package %s %s: sched_ext in BTF is %s, want %s", p.name, p.version, got, s.want)
	}
	return kernel{Release: release, Package: p.name, Version: p.version, Suite: p.suite, SchedExt: got}, nil
}

// findImage returns the kernel image below root and its release. Packages from
// 7.x on keep it with the modules instead of in /boot.
func findImage(root string) (image, release string, err error) {
	for _, pattern := range []string{"boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz", "lib/modules/*/vmlinuz"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", "", err
		}
		for _, f := range found {
			if r, ok := strings.CutPrefix(filepath.Base(f), "vmlinuz-"); ok {
				return f, r, nil
			}
			return f, filepath.Base(filepath.Dir(f)), nil
		}
	}
	return "", "", errors.New("no kernel image in it")
}

// splitVersion reads "7.2"; the table holds nothing else.
func splitVersion(s string) (major, minor int) {
	a, b, _ := strings.Cut(s, ".")
	major, _ = strconv.Atoi(a)
	minor, _ = strconv.Atoi(b)
	return major, minor
}
