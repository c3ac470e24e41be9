// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// start runs a program that is born in the cgroup: it never runs a moment
// outside it.
func (t *tree) start(cmd *exec.Cmd, cgroup string) error {
	dir, err := os.Open(t.root + cgroup)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", cgroup, err)
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD, cmd.SysProcAttr.Pdeathsig = true, int(dir.Fd()), syscall.SIGKILL
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	// A child inherits the affinity of the thread that forks it.
	return onAllCPUs(func() error {
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s in cgroup %s: %w", cmd.Path, cgroup, err)
		}
		return nil
	})
}

// stop ends everything that was started, newest first, and removes its files.
func (n *node) stop() error {
	for _, last := range slices.Backward(n.atEnd) {
		last()
	}
	var err error
	for len(n.background) > 0 {
		err = errors.Join(err, n.endBackground())
	}
	for _, cmd := range slices.Backward(n.started) {
		end(cmd)
	}
	n.atEnd, n.started = nil, nil
	if n.atExit != nil {
		err = errors.Join(err, n.atExit())
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(max(d, 0)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
