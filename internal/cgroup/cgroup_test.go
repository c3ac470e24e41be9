// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func dir(id uint64) *fstest.MapFile {
	return &fstest.MapFile{Mode: fs.ModeDir | 0o755, Sys: &syscall.Stat_t{Ino: id}}
}

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func node(t *testing.T) *Tree {
	t.Helper()
	tree, err := New(fstest.MapFS{
		".":                         dir(1),
		"cgroup.controllers":        text("cpuset cpu io memory pids\n"),
		"kubepods":                  dir(10),
		"kubepods/besteffort":       dir(11),
		"kubepods/besteffort/pod-a": dir(12),
		"kubepods/besteffort/pod-b": dir(13),
		"kubepods/cgroup.procs":     text(""),
		"system.slice":              dir(20),
		"system.slice/ssh.service":  dir(21),
		"system.slice/odd":          dir(22),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestNew(t *testing.T) {
	cases := map[string]struct {
		fsys fs.FS
		want error
	}{
		"version 1":              {fstest.MapFS{"cpu": dir(1)}, ErrNotUnified},
		"cpu bound elsewhere":    {fstest.MapFS{"cgroup.controllers": text("hugetlb cpuset\n")}, ErrNoController},
		"cpuset alone is no cpu": {fstest.MapFS{"cgroup.controllers": text("cpuset\n")}, ErrNoController},
		"version 2":              {fstest.MapFS{"cgroup.controllers": text("cpu\n")}, nil},
	}
	for name, c := range cases {
		if _, err := New(c.fsys); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotUnified) {
		t.Errorf("Open of an empty directory: %v", err)
	}
}

func TestID(t *testing.T) {
	tree := node(t)
	for path, want := range map[string]uint64{"/": 1, "/kubepods": 10, "/kubepods/besteffort/pod-b": 13} {
		if got, err := tree.ID(path); err != nil || got != want {
			t.Errorf("ID(%s) = %d, %v; want %d", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"/nowhere":               "find cgroup /nowhere: file does not exist",
		"/kubepods/cgroup.procs": "find cgroup /kubepods/cgroup.procs: not a cgroup",
		"/../../etc":             "find cgroup /../../etc: file does not exist",
	} {
		if _, err := tree.ID(path); err == nil || err.Error() != want {
			t.Errorf("ID(%s): error %v, want %s", path, err, want)
		}
	}
}

// TestIDOnRealDirectories checks that the number is what stat(2) reports, for
// that is what the kernel uses.
func TestIDOnRealDirectories(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/cgroup.controllers", []byte("cpu"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root+"/pod", 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(root+"/pod", &stat); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.ID("/pod"); err != nil || got != stat.Ino {
		t.Errorf("ID = %d, %v; stat says %d", got, err, stat.Ino)
	}
}

func TestPaths(t *testing.T) {
	got, err := node(t).Paths()
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]string{
		1: "/", 10: "/kubepods", 11: "/kubepods/besteffort", 12: "/kubepods/besteffort/pod-a",
		13: "/kubepods/besteffort/pod-b", 20: "/system.slice", 21: "/system.slice/ssh.service", 22: "/system.slice/odd",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// vanishing is a hierarchy in which one cgroup goes between listing and reading.
type vanishing struct{ fstest.MapFS }

func (v vanishing) Open(name string) (fs.File, error) {
	if name == "kubepods/besteffort" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENODEV}
	}
	return v.MapFS.Open(name)
}

func (v vanishing) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "kubepods/besteffort" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENODEV}
	}
	return v.MapFS.ReadDir(name)
}

func TestPathsWhileCgroupsVanish(t *testing.T) {
	tree := node(t)
	tree.fsys = vanishing{tree.fsys.(fstest.MapFS)}
	got, err := tree.Paths()
	if err != nil {
		t.Fatal(err)
	}
	if got[10] != "/kubepods" || got[21] != "/system.slice/ssh.service" {
		t.Errorf("the cgroups that stayed are missing: %v", got)
	}
}
