// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// node is one file of a tree: from the host, or made of data.
type node struct {
	mode         int // type and permissions
	source       string
	data         []byte // content, or a link's target
	major, minor int
}

// tree is the files of a file system by path without the leading slash.
type tree map[string]node

// add puts a node at p, with the directories above it.
func (t tree) add(p string, n node) {
	p = mergeUsr(strings.Trim(path.Clean("/"+p), "/"))
	if p == "" {
		return
	}
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		if _, ok := t[d]; !ok {
			t[d] = node{mode: typeDir | 0o755}
		}
	}
	if old, ok := t[p]; ok && old.mode&typeMask == typeDir && n.mode&typeMask == typeDir {
		return
	}
	t[p] = n
}

func (t tree) dir(p string, perm int)  { t.add(p, node{mode: typeDir | perm}) }
func (t tree) link(p, target string)   { t.add(p, node{mode: typeLink | 0o777, data: []byte(target)}) }
func (t tree) file(p string, b []byte) { t.add(p, node{mode: typeFile | 0o644, data: b}) }
func (t tree) char(p string, major, minor int) {
	t.add(p, node{mode: typeChar | 0o666, major: major, minor: minor})
}

// mergeUsr moves what packages still ship in the root's own directories to
// where the links of a merged system point.
func mergeUsr(p string) string {
	first, rest, ok := strings.Cut(p, "/")
	if ok && slices.Contains([]string{"bin", "sbin", "lib", "lib64"}, first) {
		return "usr/" + first + "/" + rest
	}
	return p
}

// copyFrom adds the file or directory src of the host as dst.
func (t tree) copyFrom(dst, src string) error {
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("copy %s: %w", p, err)
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return fmt.Errorf("copy %s: %w", p, err)
		}
		info, err := os.Lstat(p)
		if p == src {
			info, err = os.Stat(p)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", p, err)
		}
		at := path.Join(dst, filepath.ToSlash(rel))
		switch perm := int(info.Mode().Perm()); {
		case info.IsDir():
			t.dir(at, perm)
		case info.Mode().IsRegular():
			t.add(at, node{mode: typeFile | perm, source: p})
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return fmt.Errorf("copy %s: %w", p, err)
			}
			t.link(at, target)
		}
		return nil
	})
}

// write writes the tree as one archive, in the order of names.
func (t tree) write(w io.Writer) error {
	c := &cpioWriter{w: w}
	for _, p := range slices.Sorted(maps.Keys(t)) {
		n := t[p]
		if n.source == "" {
			c.entry(p, n.mode, n.major, n.minor, int64(len(n.data)), bytes.NewReader(n.data))
			continue
		}
		if err := writeSource(c, p, n); err != nil {
			return fmt.Errorf("write %s: %w", p, err)
		}
	}
	return c.close()
}

func writeSource(c *cpioWriter, p string, n node) error {
	f, err := os.Open(n.source)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	c.entry(p, n.mode, 0, 0, st.Size(), f)
	return c.err
}
