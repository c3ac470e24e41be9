// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// watched is a hierarchy of directories on a file system with inotify.
func watched(t *testing.T) (*Tree, Kubepods, string) {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"kubepods/burstable", "kubepods/besteffort"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	k, err := tree.Kubepods()
	if err != nil {
		t.Fatal(err)
	}
	return tree, k, filepath.Join(root, "kubepods")
}

func TestWatch(t *testing.T) {
	tree, k, dir := watched(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, err := tree.Watch(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	pod := "pod" + uidA
	for _, do := range []func() error{
		func() error { return os.Mkdir(filepath.Join(dir, pod), 0o755) },
		func() error { return os.Mkdir(filepath.Join(dir, "burstable", pod), 0o755) },
		func() error { return os.Mkdir(filepath.Join(dir, "besteffort", pod), 0o755) },
		func() error { return os.Remove(filepath.Join(dir, "burstable", pod)) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if _, open := <-changes; !open {
			t.Fatal("closed")
		}
	}
	cancel()
	for open := true; open; {
		_, open = <-changes
	}
}

func TestWatchEndsWithADirectory(t *testing.T) {
	tree, k, dir := watched(t)
	changes, err := tree.Watch(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "burstable")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range changes {
		n++
	}
	if n > 1 {
		t.Errorf("%d changes for one", n)
	}
	if _, err := tree.Watch(t.Context(), k); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("watching what is gone: %v", err)
	}
}

func event(mask uint32, name string) []byte {
	b := make([]byte, unix.SizeofInotifyEvent, 64)
	binary.NativeEndian.PutUint32(b[4:], mask)
	padded := (len(name) + 15) / 16 * 16
	binary.NativeEndian.PutUint32(b[12:], uint32(padded))
	return append(append(b, name...), make([]byte, padded-len(name))...)
}

func TestParseEvents(t *testing.T) {
	join := func(events ...[]byte) (all []byte) {
		for _, e := range events {
			all = append(all, e...)
		}
		return all
	}
	for name, c := range map[string]struct {
		batch         []byte
		changed, gone bool
	}{
		"nothing":  {nil, false, false},
		"a cgroup": {event(unix.IN_CREATE|unix.IN_ISDIR, "pod1"), true, false},
		"a file":   {event(unix.IN_CREATE, "cpuset.cpus"), false, false},
		"a file, then a cgroup": {
			join(event(unix.IN_DELETE, "cpuset.cpus"), event(unix.IN_DELETE|unix.IN_ISDIR, "pod1")), true, false,
		},
		"an overflow":         {event(unix.IN_Q_OVERFLOW, ""), true, false},
		"a watch that ended":  {event(unix.IN_IGNORED, ""), false, true},
		"an unmount":          {join(event(unix.IN_UNMOUNT, ""), event(unix.IN_IGNORED, "")), false, true},
		"a batch that is cut": {event(unix.IN_CREATE|unix.IN_ISDIR, "pod1")[:10], false, false},
	} {
		if changed, gone := parseEvents(c.batch); changed != c.changed || gone != c.gone {
			t.Errorf("%s: changed %v, gone %v", name, changed, gone)
		}
	}
}
