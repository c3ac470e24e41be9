// SPDX-License-Identifier: Apache-2.0

// Package view compares two readings of a scheduler's counters and draws what
// happened between them. It is shared by the commands that show it; it reads
// nothing itself.
package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

// View is what happened between two readings of the counters.
type View struct {
	Interval   time.Duration `json:"interval_ns"`
	Generation uint64        `json:"generation"`
	Lend       string        `json:"lend"`
	// WaitBound is the promise, WorstWait the longest wait since the attach.
	WaitBound time.Duration `json:"wait_bound_ns"`
	WorstWait time.Duration `json:"worst_wait_ns"`
	// Lent is how many CPUs' worth of time fences lent to lower tiers.
	Lent   float64     `json:"lent_cpus"`
	Tiers  []tierView  `json:"tiers"`
	CPUs   []cpuView   `json:"cpus"`
	Groups []groupView `json:"groups"`
	// Limits are the CPU limits that are held, LimitsNotHeld counts those that
	// found no slot since the attach.
	Limits        []limitView `json:"limits"`
	LimitsNotHeld uint64      `json:"limits_not_held"`
}

// Reading is everything that is counted, at one moment.
type Reading struct {
	Stats  sched.Stats
	Limits []sched.LimitStats
	// LimitsNotHeld are those that found no slot since the attach.
	LimitsNotHeld uint64
}

// delays are the wakeup delays of an interval.
type delays struct {
	WakeupsPerSecond float64       `json:"wakeups_per_second"`
	P50              time.Duration `json:"wakeup_delay_p50_ns"`
	P99              time.Duration `json:"wakeup_delay_p99_ns"`
}

type tierView struct {
	Tier tier.Tier `json:"tier"`
	CPUs float64   `json:"cpus"` // CPUs' worth of time it ran
	delays
	WorstWait            time.Duration `json:"worst_wait_ns"` // since the attach
	PreemptionsPerSecond float64       `json:"preemptions_per_second"`
	PreemptedPerSecond   float64       `json:"preempted_per_second"`
	RescuesPerSecond     float64       `json:"rescues_per_second"`
	Inversion            time.Duration `json:"inversion_ns"`
}

type cpuView struct {
	CPU   int                `json:"cpu"`
	Fence string             `json:"fence,omitempty"` // the cgroup it is fenced for
	Share map[string]float64 `json:"share"`           // of the interval, by bucket
}

type groupView struct {
	Cgroup string    `json:"cgroup"`
	ID     uint64    `json:"id"`
	Tier   tier.Tier `json:"tier"`
	CPUs   float64   `json:"cpus"`
	delays
	WorstWait time.Duration `json:"worst_wait_ns"` // since the attach
}

// Compare returns what happened between two readings. Counters that ran
// backwards belong to a new attach and count as nothing.
func Compare(before, after Reading) View {
	v := View{
		Interval: after.Stats.At - before.Stats.At, WaitBound: after.Stats.WaitBound,
		CPUs: []cpuView{}, Groups: []groupView{}, Limits: []limitView{},
	}
	v.tiers(before.Stats, after.Stats)
	v.cpus(before.Stats, after.Stats)
	v.groups(before.Stats, after.Stats)
	v.limits(before, after)
	return v
}

func (v *View) tiers(before, after sched.Stats) {
	for i, now := range after.Tiers {
		then := before.Tiers[i]
		v.Tiers = append(v.Tiers, tierView{
			Tier:                 tier.Tier(i),
			CPUs:                 v.ratio(now.CPU - then.CPU),
			delays:               v.delays(then.WakeupDelay, now.WakeupDelay),
			WorstWait:            now.WorstWait,
			PreemptionsPerSecond: v.perSecond(grown(then.Preemptions, now.Preemptions)),
			PreemptedPerSecond:   v.perSecond(grown(then.Preempted, now.Preempted)),
			RescuesPerSecond:     v.perSecond(grown(then.Rescued, now.Rescued)),
			Inversion:            max(now.Inversion-then.Inversion, 0),
		})
		v.WorstWait = max(v.WorstWait, now.WorstWait)
	}
}

func (v *View) cpus(before, after sched.Stats) {
	then := map[int]sched.CPUTime{}
	for _, c := range before.CPUs {
		then[c.CPU] = c
	}
	for _, now := range after.CPUs {
		c := cpuView{CPU: now.CPU, Share: map[string]float64{}}
		for b, d := range now.Buckets {
			c.Share[bucketNames[b]] = v.ratio(d - then[now.CPU].Buckets[b])
		}
		v.Lent += c.Share[bucketNames[sched.BucketLent]]
		v.CPUs = append(v.CPUs, c)
	}
}

func (v *View) groups(before, after sched.Stats) {
	then := map[uint64]sched.GroupStats{}
	for _, g := range before.Groups {
		then[g.ID] = g
	}
	for _, now := range after.Groups {
		old := then[now.ID]
		v.Groups = append(v.Groups, groupView{
			ID: now.ID, Tier: now.Tier, Cgroup: now.Cgroup,
			CPUs:      v.ratio(now.CPU - old.CPU),
			delays:    v.delays(old.WakeupDelay, now.WakeupDelay),
			WorstWait: now.WorstWait,
		})
	}
	slices.SortStableFunc(v.Groups, func(a, b groupView) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(a.ID, b.ID))
	})
}

// InForce adds what the counters do not tell: the plan, and of each cgroup what
// name says it is called.
func (v *View) InForce(generation uint64, plan policy.Plan, name func(id uint64) string) {
	v.Generation, v.Lend = generation, plan.Lend.String()
	for i := range v.Groups {
		v.Groups[i].Cgroup = name(v.Groups[i].ID)
	}
	fenced := map[int]string{}
	for _, g := range plan.Groups {
		for _, cpu := range g.Fence {
			fenced[cpu] = name(g.ID)
		}
	}
	for i := range v.CPUs {
		v.CPUs[i].Fence = fenced[v.CPUs[i].CPU]
	}
}

func (v *View) ratio(d time.Duration) float64 {
	if v.Interval <= 0 || d <= 0 {
		return 0
	}
	return float64(d) / float64(v.Interval)
}

func (v *View) perSecond(n uint64) float64 {
	if v.Interval <= 0 {
		return 0
	}
	return float64(n) / v.Interval.Seconds()
}

func (v *View) delays(before, after sched.Histogram) delays {
	h := after.Sub(before)
	return delays{WakeupsPerSecond: v.perSecond(h.Count()), P50: h.Quantile(0.5), P99: h.Quantile(0.99)}
}

func grown(before, after uint64) uint64 {
	if after < before {
		return 0
	}
	return after - before
}

// bucketNames are the ledger's buckets as -o json spells them.
var bucketNames = [sched.BucketCount]string{
	sched.BucketOwn:        "own",
	sched.BucketCritical:   "critical",
	sched.BucketSystem:     "system",
	sched.BucketStandard:   "standard",
	sched.BucketBackground: "background",
	sched.BucketLent:       "lent",
	sched.BucketOther:      "other",
	sched.BucketIRQ:        "irq",
	sched.BucketIdle:       "idle",
}
