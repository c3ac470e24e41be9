// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lock is a file lock, which the kernel drops with the process that holds it.
type lock struct{ file *os.File }

// holdNode makes this process the one that keeps the scheduler alive. Two of
// them would take turns at the heartbeat, and neither would notice the other's death.
func holdNode(dir string) (*lock, error) {
	file, err := openLock(dir, "run.lock")
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer file.Close()
		return nil, &failure{
			code: exitBusy,
			err:  fmt.Errorf("hold node: another temper run does, process %s", owner(file)),
			fix:  "temper apply -f plan.yaml changes its plan, temper stop ends it",
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	l := &lock{file}
	if err := l.sign(); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// holdPlan waits until no other process changes the plan.
func holdPlan(dir string) (*lock, error) {
	l, _, err := lockPlan(dir, syscall.LOCK_EX)
	return l, err
}

// tryHoldPlan is holdPlan for those who cannot wait; held is false if another
// process changes the plan now.
func tryHoldPlan(dir string) (l *lock, held bool, err error) {
	return lockPlan(dir, syscall.LOCK_EX|syscall.LOCK_NB)
}

func lockPlan(dir string, how int) (l *lock, held bool, err error) {
	file, err := openLock(dir, "plan.lock")
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(file.Fd()), how)
	if err == nil {
		return &lock{file}, true, nil
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
func (l *lock) sign() error {
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

// release lets the next one in. The file stays: removing it would let two
// processes hold locks of the same name.
func (l *lock) release() { l.file.Close() }
