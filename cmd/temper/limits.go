// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// checkLimits refuses a plan that wants all CPU limits held where not all can be.
func (n node) checkLimits(plan policy.Plan, pinDir string) error {
	if plan.CPUMax != policy.CPUMaxRefuse {
		return nil
	}
	// What keeps the scheduler off anyway comes first.
	for _, c := range n.preflight(pinDir) {
		if !c.OK {
			return &refusal{reason: c.Reason, fix: c.Fix, err: errors.New(c.Detail)}
		}
	}
	can, err := n.limitSupport()
	if err != nil {
		return translate(err)
	}
	tree, err := n.tree()
	if err != nil {
		return err
	}
	limits, err := tree.Limits()
	if err != nil {
		return err
	}
	if p := policy.CheckLimits(limits, can); p != nil {
		return &refusal{reason: sched.LimitsNotHeld, fix: p.Fix, err: fmt.Errorf("cpuMax is refuse: %s", p.Cause)}
	}
	return nil
}

// followLimits returns what reads the limits anew each time it is called, nil
// where the kernel itself tells of them.
func (n node) followLimits(e engine) (func() error, error) {
	can, err := n.limitSupport()
	if err != nil || can.Told {
		return nil, translate(err)
	}
	tree, err := n.tree()
	if err != nil {
		return nil, err
	}
	f := agent.Follower{List: tree.Limits, Set: e.SetLimit, Held: e.Limits}
	return f.Follow, nil
}

// describeLimits adds what the kernel side does not know: names, and what the
// kernel counted.
func (n node) describeLimits(limits []sched.LimitStats, paths map[uint64]string) error {
	if len(limits) == 0 {
		return nil
	}
	tree, err := n.tree()
	if err != nil {
		return err
	}
	for i := range limits {
		l := &limits[i]
		if l.Cgroup = paths[l.ID]; l.Cgroup == "" {
			continue
		}
		if l.KernelUsage, err = tree.Usage(l.Cgroup); err != nil && !cgroup.IsGone(err) {
			return err
		}
	}
	return nil
}

// limitStatus is a limit as status prints it: totals since the limit came.
type limitStatus struct {
	Limit float64 `json:"limit_cpus"` // 0: lifted
	sched.LimitStats
}

// limitStatuses returns the limits of the attached scheduler by their paths.
func (n node) limitStatuses(e engine) (held []limitStatus, notHeld uint64, err error) {
	if notHeld, err = e.LimitsNotHeld(); err != nil {
		return nil, 0, err
	}
	limits, err := e.Limits()
	if err != nil || len(limits) == 0 {
		return nil, notHeld, err
	}
	tree, err := n.tree()
	if err != nil {
		return nil, 0, err
	}
	paths, err := tree.Paths()
	if err != nil {
		return nil, 0, err
	}
	if err := n.describeLimits(limits, paths); err != nil {
		return nil, 0, err
	}
	for _, l := range limits {
		held = append(held, limitStatus{l.CPUs(), l})
	}
	slices.SortFunc(held, func(a, b limitStatus) int {
		return cmp.Or(cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.ID, b.ID))
	})
	return held, notHeld, nil
}

// limitLines are the limits of status, totals since each came.
func (s status) limitLines() []string {
	var lines []string
	if len(s.Limits) > 0 {
		lines = view.Table("LIMIT\tUSED\tKERNEL\tPACED\tPERIODS\tLONGEST WAIT\tLONGEST STOP\tDEBT\tCGROUP", func(row func(...any)) {
			for _, l := range s.Limits {
				row(view.LimitText(l.LimitStats), view.Short(l.Used), view.Short(l.KernelUsage), view.Short(l.Paced), l.PacedPeriods,
					view.Short(l.LongestWait), view.Short(l.LongestStop), view.Short(l.Debt), view.LimitedCgroup(l.LimitStats))
			}
		})
	}
	if s.LimitsNotHeld > 0 {
		lines = append(lines, view.NotHeldText(s.LimitsNotHeld))
	}
	return lines
}
