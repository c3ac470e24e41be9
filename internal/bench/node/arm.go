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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// attachBound is how long putting the plan in force may take.
const attachBound = time.Minute

// execEndBound is how long a user's scheduler may take to end when it is told to.
const execEndBound = 10 * time.Second

// planFile is where the plan lies.
func (n *node) planFile() string { return filepath.Join(n.dir, "plan.yaml") }

// startScheduler starts the arm's, if it has one.
func (n *node) startScheduler(ctx context.Context) error {
	if err := os.WriteFile(n.planFile(), []byte(n.plan()), 0o644); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	switch {
	case n.spec.Scenario.KindOf().Agent:
		return nil // it attaches by itself
	case n.spec.Arm.Exec != nil:
		return n.startExec(ctx)
	case n.spec.Arm.Ops == sched.Name:
		return n.startTemper(ctx)
	}
	return nil
}

// startTemper runs the command line as a user would and waits until it says
// that the plan is in force. The probe is this program's, as in every arm.
func (n *node) startTemper(ctx context.Context) error {
	args := []string{"run", "-f", n.planFile(), "--measure=false"}
	if n.spec.Arm.NoPreempt {
		args = append(args, "--ablate", "no-preempt")
	}
	cmd := exec.CommandContext(ctx, n.spec.Temper, args...)
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

// configWord stands for the configuration's path in an exec arm's arguments.
const configWord = "{config}"

// startExec starts the scheduler that the user brings, where a node's agents
// live, and waits until the kernel says that it schedules.
func (n *node) startExec(ctx context.Context) error {
	args := append(slices.Clone(n.spec.ExecLoader), n.spec.Exec)
	for _, arg := range n.spec.Arm.Exec.Args {
		args = append(args, strings.ReplaceAll(arg, configWord, n.spec.ExecConfig))
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := n.tree.start(cmd, agent); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// Not in n.started, whose processes nobody else waits for. A scheduler that pinned
	// itself would outlive a kill.
	n.atEnd = append(n.atEnd, func() {
		_ = cmd.Cancel()
		select {
		case <-ended:
		case <-time.After(execEndBound):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	bound := time.After(attachBound)
	for {
		s := sampleSched(0)
		if s.State == "enabled" && s.Ops != "" {
			return n.tell(Event{Progress: fmt.Sprintf("%s attached as %s", n.spec.Arm.Exec.Program, s.Ops)})
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("run %s: it ended without attaching: %s; it said: %s", n.spec.Arm.Exec.Program, cmd.ProcessState, strings.TrimSpace(said.String()))
		case <-bound:
			return fmt.Errorf("run %s: not attached after %v", n.spec.Arm.Exec.Program, attachBound)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// plan gives a critical pod as many whole CPUs as it requests for a fence; the
// services of a chain request less than one and only rank above others. The
// client is no pod: it is system, as everything outside of pods.
func (n *node) plan() string {
	var b strings.Builder
	if lend := n.spec.Arm.Lend; lend != "" {
		fmt.Fprintf(&b, "lend: %s\n", lend)
	}
	b.WriteString("groups:\n")
	group := func(path string, t tier.Tier, fence []int) {
		fmt.Fprintf(&b, "  - cgroup: %s%s\n    tier: %s\n", n.spec.Root, path, t)
		if len(fence) > 0 {
			fmt.Fprintf(&b, "    fence: %q\n", topology.FormatList(fence))
		}
	}
	primary, background := n.tiers()
	fence := n.layout.fence
	if primary != tier.Critical {
		fence = nil
	}
	for i := range criticalPods(n.spec.Scenario.Primary) {
		group(criticalPod(i), primary, fence)
	}
	group(kubepods, tier.Standard, nil)
	group(bench.BestEffort+"/*", background, nil)
	for _, p := range n.listed() {
		if p.Tier == tier.Standard.String() {
			// A group of its own: its weight counts against the others'.
			group(p.path, tier.Standard, nil)
		}
	}
	return b.String()
}
