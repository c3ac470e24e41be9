// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// checkLimits refuses a plan that wants all CPU limits held where not all can be.
func (n node) checkLimits(plan policy.Plan) error {
	if plan.CPUMax != policy.CPUMaxRefuse {
		return nil
	}
	// What keeps the scheduler off anyway comes first.
	for _, c := range n.preflight() {
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

// follower tells the kernel side of CPU limits where the kernel does not.
type follower struct {
	list  func() ([]policy.Limit, error)
	set   func(policy.Limit) error
	known map[uint64]policy.Limit // by cgroup id: what the kernel side was told
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
	f := follower{list: tree.Limits, set: e.SetLimit, known: map[uint64]policy.Limit{}}
	return f.follow, nil
}

// follow passes on what changed. What could not be set is tried again next time.
func (f *follower) follow() error {
	now, err := f.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range policy.LimitChanges(f.known, now) {
		err := f.set(l)
		gone := errors.Is(err, unix.ENOENT)
		switch {
		case err != nil && !gone:
			errs = append(errs, err)
		case gone || l.QuotaUs == 0:
			delete(f.known, l.ID)
		default:
			f.known[l.ID] = l
		}
	}
	return errors.Join(errs...)
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

// limitView is a CPU limit as -o json prints it: what happened in the interval,
// and in Total what happened since the limit came.
type limitView struct {
	Limit          float64          `json:"limit_cpus"`  // 0: lifted
	CPUs           float64          `json:"cpus"`        // charged to it
	KernelCPUs     float64          `json:"kernel_cpus"` // as the kernel counts, in cpu.stat
	WaitsPerSecond float64          `json:"waits_per_second"`
	PacedShare     float64          `json:"paced_share"` // of the interval, a thread waited
	PacedPeriods   uint64           `json:"paced_periods"`
	Debt           time.Duration    `json:"debt_ns"`
	Total          sched.LimitStats `json:"total"`
}

// limits adds what limits did between two readings.
func (v *view) limits(before, after reading) {
	then := map[uint64]sched.LimitStats{}
	for _, l := range before.limits {
		then[l.ID] = l
	}
	v.LimitsNotHeld = after.notHeld
	for _, now := range after.limits {
		old, seen := then[now.ID]
		if !seen || now.Used < old.Used { // it came meanwhile
			old = sched.LimitStats{KernelUsage: now.KernelUsage}
		}
		v.Limits = append(v.Limits, limitView{
			Limit:          now.CPUs(),
			CPUs:           v.ratio(now.Used - old.Used),
			KernelCPUs:     v.ratio(now.KernelUsage - old.KernelUsage),
			WaitsPerSecond: v.perSecond(grown(old.Waits, now.Waits)),
			PacedShare:     min(v.ratio(now.Paced-old.Paced), 1),
			PacedPeriods:   grown(old.PacedPeriods, now.PacedPeriods),
			Debt:           max(now.Debt-old.Debt, 0),
			Total:          now,
		})
	}
	slices.SortFunc(v.Limits, func(a, b limitView) int {
		return cmp.Or(cmp.Compare(b.PacedShare, a.PacedShare), cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(a.Total.ID, b.Total.ID))
	})
}

func (v view) limitLines() []string {
	var lines []string
	if len(v.Limits) > 0 {
		lines = table("LIMIT\tCPUS\tKERNEL\tPACED\tPERIODS\tWAITING\tLONGEST WAIT\tLONGEST STOP\tDEBT\tCGROUP", func(row func(...any)) {
			for _, l := range v.Limits {
				row(limitText(l.Total), fmt.Sprintf("%.2f", l.CPUs), fmt.Sprintf("%.2f", l.KernelCPUs), fmt.Sprintf("%.0f%%", 100*l.PacedShare),
					l.PacedPeriods, l.Total.Waiting, short(l.Total.LongestWait), short(l.Total.LongestStop), short(l.Debt), limitedCgroup(l.Total))
			}
		})
	}
	if v.LimitsNotHeld > 0 {
		lines = append(lines, notHeldText(v.LimitsNotHeld))
	}
	return lines
}

// limitText is a limit in CPUs, with its burst if it has one.
func limitText(l sched.LimitStats) string {
	if l.Quota == 0 {
		return "lifted"
	}
	text := fmt.Sprintf("%.2f", l.CPUs())
	if l.CPUs() < 0.1 {
		text = fmt.Sprintf("%.4f", l.CPUs())
	}
	if l.Burst > 0 {
		text += "+" + short(l.Burst)
	}
	return text
}

func limitedCgroup(l sched.LimitStats) string {
	if l.Cgroup == "" {
		return fmt.Sprintf("(gone, id %d)", l.ID)
	}
	return l.Cgroup
}

func notHeldText(n uint64) string {
	return fmt.Sprintf("not held, because all slots were taken: %s (docs/limits.md)", count(int(n), "CPU limit"))
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
		lines = table("LIMIT\tUSED\tKERNEL\tPACED\tPERIODS\tLONGEST WAIT\tLONGEST STOP\tDEBT\tCGROUP", func(row func(...any)) {
			for _, l := range s.Limits {
				row(limitText(l.LimitStats), short(l.Used), short(l.KernelUsage), short(l.Paced), l.PacedPeriods,
					short(l.LongestWait), short(l.LongestStop), short(l.Debt), limitedCgroup(l.LimitStats))
			}
		})
	}
	if s.LimitsNotHeld > 0 {
		lines = append(lines, notHeldText(s.LimitsNotHeld))
	}
	return lines
}
