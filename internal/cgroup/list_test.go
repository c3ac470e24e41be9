// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListOfMany holds what one system call tells against stat(2), of more
// children than one call returns.
func TestListOfMany(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/cgroup.controllers", []byte("cpu"), 0o644); err != nil {
		t.Fatal(err)
	}
	var want []child
	for i := range 1000 {
		name := fmt.Sprintf("pod-with-a-name-of-some-length-%04d", i)
		if err := os.Mkdir(root+"/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
		var stat syscall.Stat_t
		if err := syscall.Stat(root+"/"+name, &stat); err != nil {
			t.Fatal(err)
		}
		want = append(want, child{[]byte(name), stat.Ino})
	}
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree.list("/")
	slices.SortFunc(got, func(a, b child) int { return bytes.Compare(a.name, b.name) })
	if err != nil || !slices.EqualFunc(got, want, child.equal) {
		t.Errorf("%d children of 1000, %v; the first is %v", len(got), err, got[:min(1, len(got))])
	}
	if got, err := tree.list("/gone"); err != nil || got != nil {
		t.Errorf("of a cgroup that is gone: %v, %v", got, err)
	}
}

func (c child) equal(other child) bool { return c.id == other.id && bytes.Equal(c.name, other.name) }

func FuzzParseDirents(f *testing.F) {
	entry := binary.NativeEndian.AppendUint64(nil, 42)
	entry = append(entry, make([]byte, 8)...)
	entry = binary.NativeEndian.AppendUint16(entry, 24)
	entry = append(entry, unix.DT_DIR, 'p', 'o', 'd', 0, 0)
	f.Add(entry)
	f.Add(entry[:20])
	f.Fuzz(func(t *testing.T, buf []byte) {
		children := parseDirents(nil, buf)
		if most := len(buf) / 19; len(children) > most {
			t.Errorf("%d entries in %d bytes", len(children), len(buf))
		}
		if len(buf) == len(entry) && string(buf) == string(entry) && !slices.EqualFunc(children, []child{{[]byte("pod"), 42}}, child.equal) {
			t.Errorf("got %v", children)
		}
	})
}
