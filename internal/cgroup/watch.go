// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Watch says when cgroups of pods are made or removed. Changes that nobody has
// received yet count as one. The channel is closed when ctx ends or when a
// parent of pods goes: whoever still wants to know looks for Kubepods again.
//
// Of a parent that is missing in k, making it is a change in the root.
func (t *Tree) Watch(ctx context.Context, k Kubepods) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch cgroups of pods: %w", err)
	}
	queue := os.NewFile(uintptr(fd), "inotify") // in the runtime's poller, so that Close ends a Read
	for _, parent := range k.Parents() {
		dir := filepath.Join(t.root, local(parent))
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
			_ = queue.Close() // nothing was written to it
			return nil, fmt.Errorf("watch cgroup %s: %w", parent, err)
		}
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { _ = queue.Close() })
	go func() {
		defer close(changes)
		defer func() {
			if stop() {
				_ = queue.Close()
			}
		}()
		watch(queue, changes)
	}()
	return changes, nil
}

// watch passes changes on until the queue is closed or a directory is gone.
func watch(queue *os.File, changes chan<- struct{}) {
	buf := make([]byte, 16<<10)
	for {
		n, err := queue.Read(buf)
		if err != nil {
			return
		}
		changed, gone := parseEvents(buf[:n])
		if changed {
			select {
			case changes <- struct{}{}:
			default: // one is waiting to be received
			}
		}
		if gone {
			return
		}
	}
}

// parseEvents tells whether a batch of inotify events says that cgroups were
// made or removed, and whether a watched one is gone.
func parseEvents(batch []byte) (changed, gone bool) {
	for len(batch) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(batch[4:])
		name := binary.NativeEndian.Uint32(batch[12:])
		// Files come and go when controllers are switched on and off. After an
		// overflow nobody knows what was lost.
		changed = changed || mask&unix.IN_ISDIR != 0 || mask&unix.IN_Q_OVERFLOW != 0
		gone = gone || mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0
		batch = batch[min(uint64(len(batch)), unix.SizeofInotifyEvent+uint64(name)):]
	}
	return changed, gone
}
