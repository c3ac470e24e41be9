// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"maps"
	"runtime"
	"slices"

	"github.com/temper-sched/temper/internal/metric"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

// maxPodSeries bounds what a node's pods add to a scrape.
const maxPodSeries = 1500

// samples are the view's metrics.
func (v *view) samples() []metric.Sample {
	out := []metric.Sample{
		metric.BuildInfo.Is(1, v.Version, runtime.Version()),
		metric.SchedulerAttached.Is(metric.Flag(v.Engine == "attached")),
		metric.SchedulerState.Is(1, v.Mode, v.Engine, v.Reason, v.Version, v.Kernel),
		metric.AttachDuration.Counts(v.counts.attach),
		metric.PlanApplyDuration.Counts(v.counts.apply),
		metric.PodEffective.Counts(v.counts.effective),
		metric.APIConnected.Is(metric.Flag(v.Connected)),
		metric.NodeWritesFailed.Is(float64(v.unmarked)),
	}
	for _, r := range []sched.Reason{sched.EjectedStall, sched.EjectedError, sched.EjectedSysRq, sched.AgentStale, sched.ForeignScheduler, sched.Stopped} {
		out = append(out, metric.SchedulerEjects.Is(float64(v.counts.ejects[r]), string(r)))
	}
	out = append(out, v.planSamples()...)
	out = append(out, v.podSamples()...)
	if v.Stats != nil {
		out = append(out, statSamples(v.Stats, v.State.Attached)...)
	}
	return out
}

func (v *view) planSamples() []metric.Sample {
	var generation uint64
	if v.State.Attached {
		generation = v.State.Generation
	}
	fenced, without := 0, 0
	for _, g := range v.Plan.Groups {
		fenced += len(g.Fence)
		if g.NotFenced != "" {
			without++
		}
	}
	return []metric.Sample{
		metric.PlanGeneration.Is(float64(generation)),
		metric.FenceCPUs.Is(float64(fenced)),
		metric.CriticalNotFenced.Is(float64(without)),
		metric.LimitsNotHeld.Is(float64(v.LimitsNotHeld)),
	}
}

func (v *view) podSamples() []metric.Sample {
	var out []metric.Sample
	var pods [tier.Count]int
	for _, p := range v.Pods {
		if p.ID != 0 {
			pods[p.Tier]++
		}
	}
	for _, t := range tier.All() {
		if t != tier.System { // no pods are
			out = append(out, metric.Pods.Is(float64(pods[t]), t.String()))
		}
	}
	limited := slices.SortedFunc(maps.Keys(v.paced), func(a, b podName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	served := limited[:min(len(limited), maxPodSeries)]
	for _, p := range served {
		out = append(out, metric.LimitPaced.Is(v.paced[p].Seconds(), p.namespace, p.name))
	}
	return append(out, metric.SeriesDropped.Is(float64(len(limited)-len(served))))
}

func statSamples(s *sched.Stats, attached bool) []metric.Sample {
	var out []metric.Sample
	for i, t := range s.Tiers {
		name := tier.Tier(i).String()
		out = append(out,
			metric.TierCPU.Is(t.CPU.Seconds(), name),
			metric.TierWakeupDelay.Counts(dist(t.WakeupDelay), name),
			metric.TierWorstWait.Is(t.WorstWait.Seconds(), name),
		)
		if attached {
			out = append(out, metric.Preemptions.Is(float64(t.Preemptions), name))
		}
	}
	if attached {
		out = append(out, metric.WaitBound.Is(s.WaitBound.Seconds()))
	}
	out = append(out, metric.Inversion.Is(s.Tiers[tier.Critical].Inversion.Seconds()))
	for name, n := range s.Events {
		out = append(out, metric.ScxEvents.Is(float64(n), name))
	}
	return out
}

// dist puts the probe's fine buckets into the few that are exported. A fine one
// that lies across a bound counts above it: no delay is shown as shorter than it was.
func dist(h sched.Histogram) metric.Dist {
	d := metric.NewDist(metric.Delays)
	for i, n := range h.Counts {
		if _, high := sched.BucketBounds(i); n > 0 {
			d.Add(high-1, n)
		}
	}
	d.Sum(h.Sum)
	return d
}
