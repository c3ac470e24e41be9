// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// looksPerWindow counts both ends of the window.
const looksPerWindow = 5

// Look is the content of the watched files at one moment.
type Look struct {
	At     time.Duration `json:"at_ns"`  // since the window's start
	Values []string      `json:"values"` // by file; empty for one that could not be read
}

// watch reads a few files at given moments of a run, in the client's own
// thread. Files are opened beforehand: opening one costs ten times a read.
type watch struct {
	due   []int64 // moments not passed yet, ns since the client's start
	from  int64
	files []int // the first is the thread's own scheduling statistics; -1 where there is none
	looks []Look
	stats []string // of the thread, one per look
}

func newWatch(l bench.Load, paths []string) (*watch, error) {
	w := &watch{from: int64(l.Warmup + l.Pad)}
	for i := range looksPerWindow {
		w.due = append(w.due, w.from+int64(l.Window)*int64(i)/(looksPerWindow-1))
	}
	own := fmt.Sprintf("/proc/self/task/%d/schedstat", unix.Gettid())
	for i, path := range append([]string{own}, paths...) {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil && i == 0 {
			return nil, fmt.Errorf("open own scheduling statistics: %w", err)
		}
		if err != nil {
			fd = -1
		}
		w.files = append(w.files, fd)
	}
	return w, nil
}

func (w *watch) close() {
	for _, fd := range w.files {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// pass takes the looks that are due by now.
func (w *watch) pass(now int64) {
	for len(w.due) > 0 && now >= w.due[0] {
		w.due = w.due[1:]
		w.stats = append(w.stats, readAt0(w.files[0]))
		look := Look{At: time.Duration(now - w.from)}
		for _, fd := range w.files[1:] {
			look.Values = append(look.Values, readAt0(fd))
		}
		w.looks = append(w.looks, look)
	}
}

// readAt0 reads a small file from its beginning. A sysfs file whose object has
// gone, as a scheduler's when it is detached, reads as nothing.
func readAt0(fd int) string {
	var buf [128]byte
	if fd < 0 {
		return ""
	}
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(buf[:n]))
}

// runDelay is how long the thread waited for its CPU from the first look to the last.
func (w *watch) runDelay() (time.Duration, error) {
	if len(w.stats) != looksPerWindow {
		return 0, fmt.Errorf("read own run delay: %d of %d looks taken", len(w.stats), looksPerWindow)
	}
	first, err := parseRunDelay(w.stats[0])
	if err != nil {
		return 0, err
	}
	last, err := parseRunDelay(w.stats[len(w.stats)-1])
	return last - first, err
}

// parseRunDelay returns the second field of a schedstat file.
func parseRunDelay(text string) (time.Duration, error) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return 0, fmt.Errorf("read own run delay: %q", text)
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read own run delay: %w", err)
	}
	return time.Duration(ns), nil
}
