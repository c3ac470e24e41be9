// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/topology"
)

// noPreempt is the part that --ablate may leave out.
const noPreempt = "no-preempt"

func newRun(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -f plan.yaml",
		Short: "Attach the scheduler with a plan and watch over it",
		Long: `Attach the scheduler with a plan and stay in the foreground to watch over it.

Ctrl-C, SIGTERM and SIGHUP take the scheduler off again. If this process dies in
any other way, the scheduler keeps running until the dead-man's time is over, and
a new "temper run" adopts it as it stands. A scheduler that is ejected, by the
kernel or by SysRq-S, is reported with its reason, and run ends.

One plan file, one "temper run" per node; "temper apply" changes the plan of the
one that runs. A cgroup that is removed and made again gets its tier back.

CPU limits (cpu.max) are held as pace. With "cpuMax: refuse" in the plan, run does
not attach while there is one that could not be held.`,
		Example: "  temper run -f plan.yaml",
		Args:    cobra.NoArgs,
	}
	file := fileFlag(cmd)
	var measure bool
	var ablate string
	f := cmd.Flags()
	deadMan := f.Duration("dead-man", config.DefaultDeadMan, "return to the kernel's own scheduler after this long without run")
	f.BoolVar(&measure, "measure", true, "count CPU time and wakeup delays, for temper top")
	f.StringVar(&ablate, "ablate", "", "leave out a `part` of the scheduler, to see what it is worth: no-preempt")
	f.Lookup("ablate").Hidden = true // the laboratory's
	cmd.RunE = action(func(cmd *cobra.Command) error {
		if *deadMan < config.ShortestDeadMan || *deadMan > config.LongestDeadMan {
			return &failure{code: exitUsage, err: fmt.Errorf("--dead-man %s is not between %s and %s", *deadMan, config.ShortestDeadMan, config.LongestDeadMan)}
		}
		if ablate != "" && ablate != noPreempt {
			return &failure{code: exitUsage, err: fmt.Errorf("--ablate %q: only %s is known", ablate, noPreempt)}
		}
		n.unmeasured = !measure
		return n.run(cmd.Context(), *file, sched.Config{PinDir: pinDir(cmd), DeadMan: *deadMan, NoPreempt: ablate == noPreempt, Log: n.log})
	})
	return cmd
}

func (n node) run(ctx context.Context, file string, cfg sched.Config) error {
	plan, err := n.readPlan(file)
	if err != nil {
		return err
	}
	held, err := holdNode(n.runDir)
	if err != nil {
		return err
	}
	defer held.Release()
	top, err := n.topology()
	if err != nil {
		return err
	}
	cfg.CPUs = top.CPUs
	if err := n.checkLimits(plan, cfg.PinDir); err != nil {
		return err
	}
	e, err := n.attach(ctx, cfg)
	if err != nil {
		return fmt.Errorf("attach scheduler: %w", err)
	}
	defer e.Close()
	if file, err = filepath.Abs(file); err != nil {
		return fmt.Errorf("resolve plan file: %w", err)
	}
	state, err := n.put(e, plan, file)
	if err != nil {
		return errors.Join(err, n.undo(e))
	}
	return n.attend(ctx, e, cfg, func() { n.announce(e, state, plan, top) })
}

// undo takes off what this process attached. What it adopted had a valid plan
// before and keeps it.
func (n node) undo(e engine) error {
	if e.Adopted() {
		return nil
	}
	if err := e.Detach(); err != nil {
		return fmt.Errorf("detach scheduler: %w", err)
	}
	return nil
}

// measure starts the probe and returns how to end it. The scheduler does not
// need it, so a node where it will not start only has no top.
func (n node) measure(e engine) (end func()) {
	if n.unmeasured {
		return func() {}
	}
	probe, err := e.Measure()
	if err != nil {
		n.log.Warn("nothing is measured", "err", err)
		return func() {}
	}
	return func() {
		if err := probe.Close(); err != nil {
			n.log.Warn("probe not ended", "err", err)
		}
	}
}

func (n node) announce(e engine, state sched.State, plan policy.Plan, top topology.Topology) {
	verb := "attached to"
	if e.Adopted() {
		verb = "adopted on"
	}
	var fenced []int
	for _, g := range plan.Groups {
		fenced = append(fenced, g.Fence...)
	}
	fences := "none fenced"
	if len(fenced) > 0 {
		fences = "CPU " + topology.FormatList(ascending(fenced)) + " fenced"
	}
	fmt.Fprintf(n.stdout, "temper: %s %s (%s), plan %d: %s, %s, lend %s\n", verb,
		view.Count(len(top.Online()), "CPU"), view.Count(len(top.Cores()), "core"),
		state.Generation, view.Count(len(plan.Groups), "group"), fences, plan.Lend)
}

// attend watches until the scheduler ends or this process is asked to stop. It
// calls ready once everything is there: the watch begins before, because the
// probe's load may take longer than the dead-man waits.
func (n node) attend(ctx context.Context, e engine, cfg sched.Config, ready func()) error {
	follow, err := n.followLimits(e)
	if err != nil {
		return errors.Join(err, n.undo(e))
	}
	w := watch{engine: e, deadMan: cfg.DeadMan, log: n.log, refresh: func() error { return n.refresh(e) }, follow: follow}
	ended := make(chan *ending, 1)
	go func() { ended <- w.run(ctx) }()
	endProbe := n.measure(e)
	ready()
	end := <-ended
	if end != nil && end.Reason != sched.Stopped {
		f := end.failure()
		f.report(n.stderr) // at once: ending the probe takes its time
		endProbe()
		return &failure{code: f.code}
	}
	endProbe()
	how := "detached by another process"
	if end == nil { // asked to stop
		how = "detached"
		if err := n.detach(context.WithoutCancel(ctx), e, cfg.PinDir); err != nil {
			return err
		}
	}
	fmt.Fprintf(n.stdout, "temper: %s, the kernel's own scheduler runs this node\n", how)
	return nil
}
