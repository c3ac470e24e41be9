// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// RunDir holds the node's locks, the safe-mode file and the record of ejects. It
// is gone after a reboot.
const RunDir = "/run/temper"

// Lock is a file lock, which the kernel drops with the process that holds it.
type Lock struct{ file *os.File }

// BusyError says that another process holds the node.
type BusyError struct{ Owner string }

// Error names the process.
func (e *BusyError) Error() string { return "hold node: process " + e.Owner + " does" }

// HoldNode makes this process the one that keeps the scheduler alive; the error
// is a *BusyError if another is. Two of them would take turns at the heartbeat,
// and neither would notice the other's death.
func HoldNode(dir string) (*Lock, error) {
	file, err := openLock(dir, "run.lock")
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer file.Close()
		return nil, &BusyError{owner(file)}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	l := &Lock{file}
	if err := l.sign(); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
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

// sign leaves the process id for the error message of whoever comes second.
func (l *Lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("sign lock: %w", err)
	}
	if _, err := fmt.Fprintf(l.file, "%d\n", os.Getpid()); err != nil {
		return fmt.Errorf("sign lock: %w", err)
	}
	return nil
}

func owner(file *os.File) string {
	text := make([]byte, 16)
	n, err := file.ReadAt(text, 0)
	if pid := strings.TrimSpace(string(text[:n])); pid != "" {
		return pid
	}
	return fmt.Sprintf("unknown (%v)", err)
}

// Release lets the next one in. The file stays: removing it would let two
// processes hold locks of the same name.
func (l *Lock) Release() { l.file.Close() }
