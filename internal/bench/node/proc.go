// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// start runs a program that is born in the cgroup: it never runs a moment
// outside it.
func (t *tree) start(cmd *exec.Cmd, cgroup string) error {
	dir, err := os.Open(t.root + cgroup)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", cgroup, err)
	}
	defer dir.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
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

// setSpinners brings the number of background pods that work to density, one
// spinner in each. A pod whose spinner ended stays, empty.
func (n *node) setSpinners(ctx context.Context, density int) error {
	for len(n.spinners) > density {
		last := n.spinners[len(n.spinners)-1]
		n.spinners = n.spinners[:len(n.spinners)-1]
		_ = last.Cancel()
		_ = last.Wait() // ended by the signal
	}
	for len(n.spinners) < density {
		ctr, err := n.tree.backgroundPod(len(n.spinners) + 1)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, n.spinner)
		if err := n.tree.start(cmd, ctr); err != nil {
			return err
		}
		n.spinners = append(n.spinners, cmd)
	}
	return nil
}

// planFile is where the plan of the temper arm lies; attachBound is how long
// putting it in force may take.
const (
	planFile    = "/tmp/plan.yaml"
	attachBound = time.Minute
)

// startTemper runs the command line as a user would and waits until it says
// that the plan is in force.
func (n *node) startTemper(ctx context.Context) error {
	if err := os.WriteFile(planFile, []byte(n.plan()), 0o644); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	cmd := exec.CommandContext(ctx, n.spec.Temper, "run", "-f", planFile)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run temper: %w", err)
	}
	if err := n.tree.start(cmd, agent); err != nil {
		return err
	}
	n.started = append(n.started, cmd)
	bound, cancel := context.WithTimeout(ctx, attachBound)
	defer cancel()
	defer context.AfterFunc(bound, func() { _ = cmd.Process.Kill() })()
	said := bufio.NewScanner(out)
	for said.Scan() {
		if strings.HasPrefix(said.Text(), "temper: attached") {
			go io.Copy(io.Discard, out) //nolint:errcheck // ends with the process
			return nil
		}
	}
	return fmt.Errorf("run temper: it ended or took %v without attaching: %w", attachBound, errors.Join(said.Err(), cmd.Wait()))
}

// plan gives the critical pod as many CPUs as it requests for a fence. The
// client is no pod: it is system, as everything outside of pods.
func (n *node) plan() string {
	var b strings.Builder
	fence := ""
	if cores := n.spec.Scenario.Primary.RequestMilliCPU / 1000; cores > 0 {
		fence = fmt.Sprintf("\n    fence: \"0-%d\"", cores-1)
	}
	fmt.Fprintf(&b, "groups:\n  - cgroup: %s\n    tier: critical%s\n", critical, fence)
	fmt.Fprintf(&b, "  - cgroup: %s\n    tier: standard\n", kubepods)
	fmt.Fprintf(&b, "  - cgroup: %s/*\n    tier: background\n", bench.BestEffort)
	return b.String()
}

// stop ends everything that was started, newest first.
func (n *node) stop() {
	for _, cmd := range slices.Backward(slices.Concat(n.started, n.spinners)) {
		_ = cmd.Cancel()
		_ = cmd.Wait() // ended by the signal
	}
	n.started, n.spinners = nil, nil
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
