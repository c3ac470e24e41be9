// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// child is a cgroup below another. Its name is a part of what was read, which
// spares an allocation for each of hundreds that are known already.
type child struct {
	name []byte
	id   uint64
}

// list returns the cgroups below one, in any order; none if it is gone. That it may
// not be read is an error: it is no pod's own. On a
// mounted hierarchy one system call tells of hundreds, ids included: asking for
// each would be most of what following a node's pods costs.
func (t *Tree) list(dir string) ([]child, error) {
	var children []child
	var err error
	if t.root == "" {
		children, err = t.stat(dir)
	} else {
		children, err = readCgroups(filepath.Join(t.root, local(dir)))
	}
	return children, unlessGone(err)
}

func (t *Tree) stat(dir string) ([]child, error) {
	entries, err := fs.ReadDir(t.fsys, local(dir))
	var children []child
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		info, err := e.Info()
		if IsGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		id, err := inode(info)
		if err != nil {
			return nil, err
		}
		children = append(children, child{[]byte(e.Name()), id})
	}
	return children, err
}

func readCgroups(dir string) ([]child, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	const most, enough = 16 << 10, 4 << 10 // bytes to read at once, and for any name
	var children []child
	for buf := []byte(nil); ; {
		if len(buf) < enough {
			buf = make([]byte, most)
		}
		n, err := unix.ReadDirent(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n <= 0:
			return children, err
		default:
			children = parseDirents(children, buf[:n])
			buf = buf[n:]
		}
	}
}

// parseDirents adds the directories in a buffer of struct linux_dirent64.
func parseDirents(children []child, buf []byte) []child {
	const (
		lengthAt = unsafe.Offsetof(unix.Dirent{}.Reclen)
		typeAt   = unsafe.Offsetof(unix.Dirent{}.Type)
		nameAt   = unsafe.Offsetof(unix.Dirent{}.Name)
	)
	for len(buf) >= int(nameAt) {
		length := int(binary.NativeEndian.Uint16(buf[lengthAt:]))
		if length < int(nameAt) || length > len(buf) {
			return children
		}
		name, _, _ := bytes.Cut(buf[nameAt:length], []byte{0})
		if buf[typeAt] == unix.DT_DIR && string(name) != "." && string(name) != ".." {
			children = append(children, child{name, binary.NativeEndian.Uint64(buf)})
		}
		buf = buf[length:]
	}
	return children
}
