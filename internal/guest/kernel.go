// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kernelSpec is a row of the table of kernels.
type kernelSpec struct {
	name    string
	version string   // major.minor
	suites  []string // where to look, in this order
	want    schedExt
	// orNewer takes the next version that qualifies once Debian dropped this
	// one: its development suites hold only the newest.
	orNewer bool
}

// kernels are the names Machine.Kernel knows. A mirror keeps few versions of a
// suite, so a row names a minor version and not a package.
var kernels = []kernelSpec{
	// The early warning: whatever comes after the main kernel.
	{name: "7.3", version: "7.3", suites: []string{"sid", "forky", "experimental"}, want: schedExtGood, orNewer: true},
	// The main kernel: it has ext_server and EXT_GROUP_SCHED.
	{name: "7.2", version: "7.2", suites: []string{"sid", "forky", "experimental"}, want: schedExtGood, orNewer: true},
	{name: "6.18", version: "6.18", suites: []string{"trixie-backports"}, want: schedExtGood},
	{name: "6.17", version: "6.17", suites: []string{"trixie-backports"}, want: schedExtGood},
	// The oldest supported: no cgroup_set_bandwidth, no bw_quota_us.
	{name: "6.16", version: "6.16", suites: []string{"trixie-backports"}, want: schedExtGood},
	// Fixture: a kernel without sched_ext.
	{name: "6.12", version: "6.12", suites: []string{"trixie", "bookworm-backports"}, want: schedExtNone},
	// Fixture: sched_ext whose kfuncs cannot be called.
	{name: "7.2-badbtf", version: "7.2", suites: []string{"trixie-backports"}, want: schedExtMalformed},
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

// kernelPackage matches the packages that may hold a kernel, and the version
// in their name. The cloud flavour has every driver a guest needs built in.
// Debian signs a little after it builds, so the unsigned package may be the
// only one.
var kernelPackage = regexp.MustCompile(`^linux-(?:image|binary|binary-unsigned)-(\d+)\.(\d+)(?:[.+-].*)?-cloud-amd64(?:-unsigned)?$`)

// candidates are the packages to try: the spec's version before newer ones,
// suites in the spec's order, a suite's newest build first.
func (s kernelSpec) candidates(a *archive) ([]*pkg, error) {
	major, minor := splitVersion(s.version)
	type candidate struct {
		major, minor, suite int
		p                   *pkg
	}
	var found []candidate
	for i, suite := range s.suites {
		x, err := a.load(suite)
		if err != nil {
			return nil, err
		}
		for name, v := range x {
			m := kernelPackage.FindStringSubmatch(name)
			if m == nil {
				continue
			}
			c := candidate{suite: i, p: v.newest()}
			c.major, c.minor = splitVersion(m[1] + "." + m[2])
			newer := c.major > major || c.major == major && c.minor > minor
			// From 6.19 on, linux-image-* is an empty package that depends on
			// linux-binary-*, where the kernel is.
			if c.p.size > 1<<20 && (s.orNewer && newer || c.major == major && c.minor == minor) {
				found = append(found, c)
			}
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor), cmp.Compare(a.suite, b.suite),
			compareVersions(b.p.version, a.p.version), cmp.Compare(len(a.p.name), len(b.p.name)))
	})
	out := make([]*pkg, 0, len(found))
	for _, c := range found {
		out = append(out, c.p)
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
	got, err := inspectBTF(vmlinux, release)
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

// splitVersion reads the first two numbers of "7.2", "7.2.13+deb14" or "7.3-cloud".
func splitVersion(s string) (major, minor int) {
	// What does not scan stays zero, which is older than every kernel here.
	_, _ = fmt.Sscanf(s, "%d.%d", &major, &minor)
	return major, minor
}
