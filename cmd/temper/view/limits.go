// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

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
func (v *View) limits(before, after Reading) {
	then := map[uint64]sched.LimitStats{}
	for _, l := range before.Limits {
		then[l.ID] = l
	}
	v.LimitsNotHeld = after.LimitsNotHeld
	for _, now := range after.Limits {
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

func (v View) limitLines() []string {
	var lines []string
	if len(v.Limits) > 0 {
		lines = Table("LIMIT\tCPUS\tKERNEL\tPACED\tPERIODS\tWAITING\tLONGEST WAIT\tLONGEST STOP\tDEBT\tCGROUP", func(row func(...any)) {
			for _, l := range v.Limits {
				row(LimitText(l.Total), fmt.Sprintf("%.2f", l.CPUs), fmt.Sprintf("%.2f", l.KernelCPUs), fmt.Sprintf("%.0f%%", 100*l.PacedShare),
					l.PacedPeriods, l.Total.Waiting, Short(l.Total.LongestWait), Short(l.Total.LongestStop), Short(l.Debt), LimitedCgroup(l.Total))
			}
		})
	}
	if v.LimitsNotHeld > 0 {
		lines = append(lines, NotHeldText(v.LimitsNotHeld))
	}
	return lines
}

// LimitText is a limit in CPUs, with its burst if it has one.
func LimitText(l sched.LimitStats) string {
	if l.Quota == 0 {
		return "lifted"
	}
	text := fmt.Sprintf("%.2f", l.CPUs())
	if l.CPUs() < 0.1 {
		text = fmt.Sprintf("%.4f", l.CPUs())
	}
	if l.Burst > 0 {
		text += "+" + Short(l.Burst)
	}
	return text
}

// LimitedCgroup is the name of the cgroup that has the limit.
func LimitedCgroup(l sched.LimitStats) string {
	if l.Cgroup == "" {
		return fmt.Sprintf("(gone, id %d)", l.ID)
	}
	return l.Cgroup
}

// NotHeldText says that limits do nothing.
func NotHeldText(n uint64) string {
	return fmt.Sprintf("not held, because all slots were taken: %s (docs/limits.md)", Count(int(n), "CPU limit"))
}
