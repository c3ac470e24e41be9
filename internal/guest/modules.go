// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// moduleSet is modules of one kernel, kept as JSON beside them.
type moduleSet struct {
	Files []string `json:"files"` // in the order to load them

	dir string
}

// resolveModules returns the kernel's modules called names and those that they
// need, fetching them on first use.
func resolveModules(ctx context.Context, k kernel, names []string, log *slog.Logger) (moduleSet, error) {
	if len(names) == 0 {
		return moduleSet{}, nil
	}
	key := digest([]byte(k.Package), []byte(k.Version), []byte(strings.Join(names, " ")))
	m, dir, err := cached(ctx, filepath.Join("modules", key), log,
		func(a *archive, dir string) (moduleSet, error) { return k.buildModules(ctx, a, names, dir) })
	if err != nil {
		return moduleSet{}, fmt.Errorf("resolve modules of kernel %s: %w", k.Release, err)
	}
	m.dir = dir
	return m, nil
}

// buildModules unpacks the modules of the package that was built with the
// kernel: its own up to 6.18, one beside it from then on.
func (k kernel) buildModules(ctx context.Context, a *archive, names []string, dir string) (moduleSet, error) {
	var m moduleSet
	name := k.Package
	if strings.HasPrefix(name, "linux-binary-") {
		name = "linux-modules-" + k.Release
	}
	x, err := a.load(k.Suite)
	if err != nil {
		return m, err
	}
	i := slices.IndexFunc(x[name], func(p *pkg) bool { return p.version == k.Version })
	if i < 0 {
		return m, fmt.Errorf("find package %s %s: no longer in %s (delete the kernel from the cache for a newer one)", name, k.Version, k.Suite)
	}
	debs, err := a.fetch(ctx, x[name][i])
	if err != nil {
		return m, err
	}
	root, remove, err := tempDir("modules")
	if err != nil {
		return m, err
	}
	defer remove()
	if err := extract(ctx, debs[0], root); err != nil {
		return m, err
	}
	all, err := findModules(root)
	if err != nil {
		return m, err
	}
	for _, name := range names {
		if m.Files, err = all.add(ctx, dir, m.Files, name); err != nil {
			return m, err
		}
	}
	return m, nil
}

// moduleFiles are a kernel's modules by name, compressed as packages ship them.
type moduleFiles map[string]string

func findModules(root string) (moduleFiles, error) {
	found := moduleFiles{}
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(p), ".ko.xz"); ok {
			found[moduleName(name)] = p
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find modules: %w", err)
	}
	return found, nil
}

// moduleName is how the kernel spells a module: files may have dashes.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// add unpacks the module called name into dir, after those that it needs, and
// returns the files to load with theirs appended.
func (f moduleFiles) add(ctx context.Context, dir string, loaded []string, name string) ([]string, error) {
	name = moduleName(name)
	if slices.Contains(loaded, name+".ko") {
		return loaded, nil
	}
	path, ok := f[name]
	if !ok {
		return loaded, fmt.Errorf("find module %s: not in the kernel's package", name)
	}
	packed, err := os.ReadFile(path)
	if err != nil {
		return loaded, fmt.Errorf("read module %s: %w", name, err)
	}
	ko, err := pipe(ctx, packed, "xz", "-dc")
	if err != nil {
		return loaded, fmt.Errorf("decompress module %s: %w", name, err)
	}
	needs, err := moduleNeeds(ko)
	if err != nil {
		return loaded, fmt.Errorf("read module %s: %w", name, err)
	}
	for _, need := range needs {
		if loaded, err = f.add(ctx, dir, loaded, need); err != nil {
			return loaded, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name+".ko"), ko, 0o644); err != nil {
		return loaded, fmt.Errorf("write module %s: %w", name, err)
	}
	return append(loaded, name+".ko"), nil
}

// moduleNeeds reads a module's own list: what depmod would find out is not in
// the package.
func moduleNeeds(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	sec := f.Section(".modinfo")
	if sec == nil {
		return nil, errors.New("no .modinfo in it")
	}
	info, err := sec.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}

// copyTo adds the modules to t, with their order in the names.
func (m moduleSet) copyTo(t tree) error {
	for i, file := range m.Files {
		if err := t.copyFrom(fmt.Sprintf("%s/%03d-%s", ModulesDir, i, file), filepath.Join(m.dir, file)); err != nil {
			return err
		}
	}
	return nil
}
