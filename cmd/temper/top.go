// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
)

const shortestInterval = 100 * time.Millisecond

func newTop(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who runs, who waits and what is lent, live",
		Long: `Show who runs, who waits and what is lent, live.

Rates, shares and wakeup delays are of the last interval; the worst waits are
since the attach. Of a CPU limit, the longest wait and the longest stop are since
it came; KERNEL is what the kernel counts beside CPUS.

Ctrl-C ends it. Without a terminal, or with -o json, readings follow each other;
--once prints one and ends.`,
		Example: "  temper top --once -o json | jq '.tiers[0]'\n  temper top --once -o json | jq '.limits[] | select(.paced_share > 0)'",
		Args:    cobra.NoArgs,
	}
	format := outputFlag(cmd)
	once := cmd.Flags().Bool("once", false, "print one interval and end")
	interval := cmd.Flags().Duration("interval", time.Second, "time between readings")
	cmd.RunE = action(func(cmd *cobra.Command) error {
		if *interval < shortestInterval {
			return &failure{code: exitUsage, err: fmt.Errorf("--interval %s is below %s", *interval, shortestInterval)}
		}
		e, err := n.openAttached(pinDir(cmd))
		if err != nil {
			return err
		}
		defer e.Close()
		return view.Follow(cmd.Context(), &top{node: n, engine: e}, view.ScreenOn(n.stdout, *format == outputJSON, *once), *interval, *once)
	})
	return cmd
}

// top reads the counters of the attached scheduler.
type top struct {
	node   node
	engine engine
	paths  map[uint64]string // cgroups by id, as of the last unknown one
}

// Read returns the counters of now.
func (t *top) Read(context.Context) (r view.Reading, err error) {
	if r.Stats, err = t.engine.Stats(); err != nil {
		return r, fmt.Errorf("read counters: %w", err)
	}
	if r.Limits, err = t.engine.Limits(); err != nil {
		return r, fmt.Errorf("read counters: %w", err)
	}
	if r.LimitsNotHeld, err = t.engine.LimitsNotHeld(); err != nil {
		return r, fmt.Errorf("read counters: %w", err)
	}
	var ids []uint64
	for _, l := range r.Limits {
		ids = append(ids, l.ID)
	}
	if err := t.learn(ids); err != nil {
		return r, err
	}
	return r, t.node.describeLimits(r.Limits, t.paths)
}

// Complete adds to the counters what they do not tell: names, and the plan.
func (t *top) Complete(v *view.View) error {
	state, err := t.engine.State()
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if !state.Attached {
		return errNotAttached
	}
	plan, err := t.engine.Plan()
	if err != nil {
		return fmt.Errorf("read plan in force: %w", err)
	}
	var ids []uint64
	for _, g := range v.Groups {
		ids = append(ids, g.ID)
	}
	for _, g := range plan.Groups {
		ids = append(ids, g.ID)
	}
	if err := t.learn(ids); err != nil {
		return err
	}
	v.InForce(state.Generation, plan, func(id uint64) string { return t.paths[id] })
	return nil
}

// learn walks the cgroup tree only when it meets an unknown id: nodes have
// thousands of cgroups. An id that stays unknown is remembered as gone.
func (t *top) learn(ids []uint64) error {
	unknown := slices.DeleteFunc(ids, func(id uint64) bool {
		_, known := t.paths[id]
		return known
	})
	if len(unknown) == 0 {
		return nil
	}
	tree, err := t.node.tree()
	if err != nil {
		return err
	}
	if t.paths, err = tree.Paths(); err != nil {
		return err
	}
	for _, id := range unknown {
		if _, found := t.paths[id]; !found {
			t.paths[id] = ""
		}
	}
	return nil
}
