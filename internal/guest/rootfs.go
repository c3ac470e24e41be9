// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"debug/elf"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// rootSuite is where the files of the root file system come from, unless a
// machine names another. Its C library is at least as new as those of the hosts that test binaries with
// cgo come from.
const rootSuite = "trixie"

// basePackages are in every root file system: a shell, the usual tools, and
// the C library for commands that are linked to it. The shell is not busybox's,
// which would run its own applets where a package has the real thing.
var basePackages = []string{"busybox-static", "dash", "libc6"}

// rootRecipe changes when the same packages should give another root.
const rootRecipe = "2"

// dropped are directories of packages that no command needs to run.
var dropped = []string{
	"usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/lintian/",
	"usr/share/bug/", "usr/share/gcc/", "usr/share/bash-completion/", "usr/share/zsh/", "usr/include/",
	"usr/lib/systemd/", "usr/lib/x86_64-linux-gnu/gconv/", "usr/lib/x86_64-linux-gnu/audit/", "etc/init.d/",
	// PostgreSQL's compiler of queries would bring all of LLVM.
	"usr/lib/postgresql/17/lib/bitcode/", "usr/lib/postgresql/17/lib/llvmjit.so/",
}

// rootfs is a built root file system, kept as JSON beside its archive.
type rootfs struct {
	Packages map[string]string `json:"packages"`

	path string
}

// rootSpec is what a root file system is made of.
type rootSpec struct {
	suite    string
	packages []string
	init     string // the host's path of process 1
}

// resolve returns the archive, building it on first use.
func (s rootSpec) resolve(ctx context.Context, log *slog.Logger) (rootfs, error) {
	initBytes, err := os.ReadFile(s.init)
	if err != nil {
		return rootfs{}, fmt.Errorf("read guest init: %w", err)
	}
	key := digest([]byte(rootRecipe), []byte(s.suite), []byte(strings.Join(s.packages, " ")), initBytes)
	r, dir, err := cached(ctx, filepath.Join("root", key), log, func(a *archive, dir string) (rootfs, error) {
		return s.build(ctx, a, filepath.Join(dir, "root.cpio"))
	})
	if err != nil {
		return rootfs{}, fmt.Errorf("build root file system: %w", err)
	}
	r.path = filepath.Join(dir, "root.cpio")
	return r, nil
}

// build writes the archive. Requested packages are kept whole; of the
// packages that they depend on, only the shared libraries that their programs
// need.
func (s rootSpec) build(ctx context.Context, a *archive, archivePath string) (rootfs, error) {
	r := rootfs{Packages: map[string]string{}}
	wanted, err := a.whole(s.suite, append(slices.Clone(basePackages), s.packages...))
	if err != nil {
		return r, err
	}
	libs, err := a.libraries(wanted, []string{s.suite})
	if err != nil {
		return r, err
	}
	libs = slices.DeleteFunc(libs, func(p *pkg) bool { return slices.Contains(wanted, p) })
	dir, remove, err := tempDir("root")
	if err != nil {
		return r, err
	}
	defer remove()
	own, err := unpack(ctx, a, filepath.Join(dir, "own"), wanted)
	if err != nil {
		return r, err
	}
	shared, err := unpack(ctx, a, filepath.Join(dir, "libs"), libs)
	if err != nil {
		return r, err
	}
	if err := addNeeded(own, shared); err != nil {
		return r, err
	}
	for _, p := range append(wanted, libs...) {
		r.Packages[p.name] = p.version
	}
	if err := addSystem(ctx, own); err != nil {
		return r, err
	}
	if err := own.copyFrom("init", s.init); err != nil {
		return r, err
	}
	return r, writeArchive(archivePath, own)
}

// whole returns the named packages and the parts that they are split into.
func (a *archive) whole(suite string, names []string) ([]*pkg, error) {
	var out []*pkg
	for len(names) > 0 {
		p, err := a.newest(names[0], suite)
		if err != nil {
			return nil, err
		}
		names = names[1:]
		if !slices.Contains(out, p) {
			out = append(out, p)
			names = append(slices.Clone(p.parts), names...)
		}
	}
	return out, nil
}

// unpack fetches packages and returns their files.
func unpack(ctx context.Context, a *archive, dir string, packages []*pkg) (tree, error) {
	debs, err := a.fetch(ctx, packages...)
	if err != nil {
		return nil, err
	}
	for _, deb := range debs {
		if err := extract(ctx, deb, dir); err != nil {
			return nil, err
		}
	}
	t := tree{}
	if len(debs) == 0 {
		return t, nil
	}
	if err := t.copyFrom("", dir); err != nil {
		return nil, err
	}
	maps.DeleteFunc(t, func(p string, _ node) bool {
		return slices.ContainsFunc(dropped, func(d string) bool { return strings.HasPrefix(p+"/", d) })
	})
	return t, nil
}

// addNeeded moves from shared to own what own's programs load at start, and
// what that loads in turn.
func addNeeded(own, shared tree) error {
	have := map[string]bool{}
	for p := range own {
		have[path.Base(p)] = true
	}
	where := map[string]string{}
	for p, n := range shared {
		if n.mode&typeMask != typeDir && strings.Contains(path.Base(p), ".so") {
			where[path.Base(p)] = p
		}
	}
	queue := slices.Sorted(maps.Keys(own))
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		for _, name := range neededBy(own[p]) {
			if have[name] {
				continue
			}
			from, ok := where[name]
			if !ok {
				if strings.Contains(path.Base(p), ".so") {
					continue // a plugin for something that was not asked for
				}
				return fmt.Errorf("find shared library %s of %s: in none of its dependencies", name, p)
			}
			have[name] = true
			queue = append(queue, own.addLibrary(shared, from)...)
		}
	}
	return nil
}

// addLibrary adds the library at p and, where it is a link, what it points to.
func (t tree) addLibrary(shared tree, p string) []string {
	var added []string
	for {
		n, ok := shared[p]
		if !ok {
			return added
		}
		t.add(p, n)
		added = append(added, p)
		if n.mode&typeMask != typeLink {
			return added
		}
		target := string(n.data)
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(p), target)
		}
		p = mergeUsr(strings.TrimPrefix(target, "/"))
	}
}

// neededBy lists the shared libraries that an ELF file names.
func neededBy(n node) []string {
	if n.mode&typeMask != typeFile || n.source == "" {
		return nil
	}
	f, err := elf.Open(n.source)
	if err != nil {
		return nil // a script or data
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil
	}
	return names
}

// addSystem adds what no package ships: links of a merged /usr, devices that
// process 1 needs before devtmpfs, users, and busybox's names.
func addSystem(ctx context.Context, t tree) error {
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		t.dir("usr/"+d, 0o755)
		t[d] = node{mode: typeLink | 0o777, data: []byte("usr/" + d)}
	}
	for _, d := range []string{"proc", "sys", "dev", "run", "out", "etc/temper", "home/temper", "var/lib", "var/log", "var/run"} {
		t.dir(d, 0o755)
	}
	t.dir("tmp", 0o1777)
	t.dir("root", 0o700)
	t.char("dev/console", 5, 1)
	t.char("dev/null", 1, 3)
	t.file("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\ntemper:x:1000:1000:temper:/home/temper:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"))
	t.file("etc/group", []byte("root:x:0:\ntemper:x:1000:\nnogroup:x:65534:\n"))
	t.file("etc/hosts", []byte("127.0.0.1 localhost guest\n"))
	t.file("etc/nsswitch.conf", []byte("passwd: files\ngroup: files\nhosts: files\n"))
	return addApplets(ctx, t)
}

// addApplets links busybox's names to it where no package has the real thing.
func addApplets(ctx context.Context, t tree) error {
	const busybox = "usr/bin/busybox"
	n, ok := t[busybox]
	if !ok {
		return fmt.Errorf("find %s: not in package busybox-static", busybox)
	}
	out, err := exec.CommandContext(ctx, n.source, "--list").Output()
	if err != nil {
		return fmt.Errorf("list busybox applets: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if _, ok := t["usr/sbin/"+name]; ok {
			continue
		}
		if _, ok := t["usr/bin/"+name]; !ok {
			t.link("usr/bin/"+name, "busybox")
		}
	}
	return nil
}

func writeArchive(p string, t tree) error {
	f, err := os.Create(p)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	err = t.write(w)
	if err == nil {
		err = w.Flush()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}
