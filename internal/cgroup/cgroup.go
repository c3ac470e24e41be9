// SPDX-License-Identifier: Apache-2.0

// Package cgroup reads the cgroup v2 hierarchy: which cgroup a path names, by
// the id that the kernel knows it by, and the way back from ids to paths.
//
// It only reads. Weights, limits and membership belong to kubelet, systemd or
// whoever made the cgroup.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Root is where the unified hierarchy is mounted.
const Root = "/sys/fs/cgroup"

// Errors that callers tell apart.
var (
	ErrNotUnified   = errors.New("no cgroup v2 hierarchy")
	ErrNoController = errors.New("no cpu controller on the cgroup v2 hierarchy")
	ErrNotCgroup    = errors.New("not a cgroup")
	ErrNoKubepods   = errors.New("no cgroup of Kubernetes pods")
)

// Tree is a mounted hierarchy. Its paths start with a slash and are relative to
// the mount, as in /proc/PID/cgroup and in plans.
type Tree struct {
	fsys fs.FS
	root string // where it is mounted, "" for one that is not

	names map[string]podName // of cgroups that Pods has seen
}

// Open returns the hierarchy mounted at root, or why there is none.
func Open(root string) (*Tree, error) {
	t, err := New(os.DirFS(root))
	if err != nil {
		return nil, fmt.Errorf("open cgroup hierarchy %s: %w", root, err)
	}
	t.root = root
	return t, nil
}

// New returns the hierarchy in fsys. The error is ErrNotUnified on a v1 or
// hybrid mount and ErrNoController where cpu is bound to v1.
func New(fsys fs.FS) (*Tree, error) {
	controllers, err := fs.ReadFile(fsys, "cgroup.controllers")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotUnified
	}
	if err != nil {
		return nil, err
	}
	if !slices.Contains(strings.Fields(string(controllers)), "cpu") {
		return nil, ErrNoController
	}
	return &Tree{fsys: fsys}, nil
}

// ID returns the id of the cgroup at p: the inode number of its directory.
func (t *Tree) ID(p string) (uint64, error) {
	info, err := fs.Stat(t.fsys, local(p))
	if err != nil {
		return 0, fmt.Errorf("find cgroup %s: %w", p, cause(err))
	}
	if !info.IsDir() {
		return 0, fmt.Errorf("find cgroup %s: %w", p, ErrNotCgroup)
	}
	return inode(info)
}

// Paths returns the path of every cgroup by its id. Cgroups that vanish while
// it walks are left out, and what is below hidden ones.
func (t *Tree) Paths() (map[uint64]string, error) {
	paths := map[uint64]string{}
	err := fs.WalkDir(t.fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case IsGone(err):
			return nil
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if IsGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		id, err := inode(info)
		if err != nil {
			return err
		}
		paths[id] = path.Join("/", name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	return paths, nil
}

// local turns a cgroup path into one that fs.FS takes.
func local(p string) string {
	p = strings.Trim(path.Clean("/"+p), "/")
	if p == "" {
		return "."
	}
	return p
}

// cause drops the operation and path that fs.PathError repeats.
func cause(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

func inode(info fs.FileInfo) (uint64, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("read inode of cgroup %s: the file system has none", info.Name())
	}
	return stat.Ino, nil
}
