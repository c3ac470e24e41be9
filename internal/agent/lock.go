// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RunDir holds the node's locks, the safe-mode file and the record of ejects. It
// is gone after a reboot.
const RunDir = "/run/temper"

// Lock is a file lock, which the kernel drops with the process that holds it.
type Lock struct{ file *os.File }

// Role is what a process holds the node as.
type Role string

// The roles.
const (
	AsAgent Role = "node agent"
	AsRun   Role = "temper run"
)

// BusyError says that another process holds the node. An agent's number is that
// of its container.
type BusyError struct {
	Owner string
	Role  Role // "": of an earlier version, which did not say
}

// Error names the process.
func (e *BusyError) Error() string { return "hold node: process " + e.Owner + " does" }

// HoldNode makes this process the one that keeps the scheduler alive; the error
// is a *BusyError if another is. Two of them would take turns at the heartbeat,
// and neither would notice the other's death.
func HoldNode(dir string, as Role) (*Lock, error) {
	file, err := openLock(dir, nodeLock)
	if err != nil {
		return nil, err
	}
	if err := take(file, unix.F_WRLCK); errors.Is(err, unix.EAGAIN) {
		defer file.Close()
		return nil, owner(file)
	} else if err != nil {
		file.Close()
		return nil, err
	}
	l := &Lock{file}
	if err := l.sign(as); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

const (
	nodeLock  = "run.lock"
	agentLock = "agent.lock"
)

// Holder is who holds the node, nil if nobody does.
func Holder(dir string) (*BusyError, error) {
	file, held, err := look(dir, nodeLock)
	if file != nil {
		defer file.Close()
	}
	if err != nil || !held {
		return nil, err
	}
	return owner(file), nil
}

// Attend says that an agent runs on the node, until the release, also while it
// does not hold it. Several may, while one follows another.
func Attend(dir string) (*Lock, error) {
	file, err := openLock(dir, agentLock)
	if err != nil {
		return nil, err
	}
	if err := take(file, unix.F_RDLCK); err != nil {
		file.Close()
		return nil, err
	}
	return &Lock{file}, nil
}

// Attended tells whether an agent runs on the node.
func Attended(dir string) (bool, error) {
	file, held, err := look(dir, agentLock)
	if file != nil {
		file.Close()
	}
	return held, err
}

// take locks the file for this handle, so that others can look whether it is
// locked and need not try: who tried would be in the way of who holds the node.
func take(file *os.File, how int16) error {
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: how}); err != nil {
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

// look tells whether the file is locked by anybody; nil if there is none.
func look(dir, name string) (file *os.File, held bool, err error) {
	file, err = os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("open lock: %w", err)
	}
	other := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &other); err != nil {
		return file, false, fmt.Errorf("look at lock %s: %w", file.Name(), err)
	}
	return file, other.Type != unix.F_UNLCK, nil
}

// HoldPlan waits until no other process changes the plan.
func HoldPlan(dir string) (*Lock, error) {
	l, _, err := lockPlan(dir, syscall.LOCK_EX)
	return l, err
}

// TryHoldPlan is HoldPlan for those who cannot wait; held is false if another
// process changes the plan now.
func TryHoldPlan(dir string) (l *Lock, held bool, err error) {
	return lockPlan(dir, syscall.LOCK_EX|syscall.LOCK_NB)
}

func lockPlan(dir string, how int) (l *Lock, held bool, err error) {
	file, err := openLock(dir, "plan.lock")
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(file.Fd()), how)
	if err == nil {
		return &Lock{file}, true, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", file.Name(), err)
}

func openLock(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create lock directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return file, nil
}

// sign leaves the process id and the role, a line each, for the error message of
// whoever comes second.
func (l *Lock) sign(as Role) error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("sign lock: %w", err)
	}
	if _, err := fmt.Fprintf(l.file, "%d\n%s\n", os.Getpid(), as); err != nil {
		return fmt.Errorf("sign lock: %w", err)
	}
	return nil
}

func owner(file *os.File) *BusyError {
	text := make([]byte, 64)
	n, err := file.ReadAt(text, 0)
	pid, role, _ := strings.Cut(strings.TrimSpace(string(text[:n])), "\n")
	if pid == "" {
		pid = fmt.Sprintf("unknown (%v)", err)
	}
	return &BusyError{pid, Role(role)}
}

// Release lets the next one in. The file stays: removing it would let two
// processes hold locks of the same name.
func (l *Lock) Release() { l.file.Close() }
