// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"slices"

	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// spec is a target as the design states it.
type spec struct {
	id, target string
	parts      func(set) []Part // nil where no scenario measures it yet
	note       string
}

// The names of arms that targets speak of.
const (
	ours  = "temper"
	stock = "eevdf"
	tuned = "eevdf-tuned"
)

func specs() []spec {
	return []spec{
		{id: "T1", target: "critical p99 at top density ≤ 1.05 × its own without background, p99.9 ≤ 1.20 ×, up to 16 spinners; at least as good as `eevdf-tuned` at every step", parts: flatTail},
		{id: "T2", target: "attached and idle: p99 ≤ 1.03 × EEVDF idle", parts: idleCost},
		{id: "T3", target: "background gets ≥ 95 % of the cycles that critical and system leave, in the same windows as T1; bursty primary loses ≤ 1 %", parts: harvest},
		{id: "T5", target: "inversion time ≤ 1e-4 of critical CPU time, no interval above 100 µs", parts: inversions},
		{id: "T6", target: "wakeup delay onto a CPU running background: p99 ≤ 2 × idle wake, better than `eevdf-tuned`", parts: wakeups},
		{id: "T8", target: "limits: use / quota within 0.99–1.01 over every 1 s and 0.97–1.03 over every 100 ms; longest time with runnable threads and none running ≤ 3 ms (8 threads, 1.5 CPUs); no parked thread holds a kernel lock", parts: limitsHeld, note: "of kernel locks no record says anything: a test in a guest does"},
		{id: "T9", target: "at the same limit: throughput ≥ 0.99 × EEVDF, p99 ≤ 0.25 × EEVDF at a 100 ms period and ≤ 0.5 × at a 10 ms period, saturated", parts: limitsPaid},
		{id: "T10", target: "chain of 19 services: p99 at top density ≤ 1.10 × own idle", parts: chain},
		{id: "T13", target: "reconfiguration: 0 ms under the stock scheduler; effective ≤ 10 ms after the pod event (p99)", parts: reconfigured},
		{id: "T14", target: "agent upgrade: 0 ms; new BPF object: ≤ 10 ms on metal, measured under TCG", parts: upgraded},
		{id: "T15", target: "eject or loss noticed ≤ 1 s, back ≤ 3 s; 0 ejects in 4 virtual hours of stress", parts: ejected, note: "no record is hours long: a soak test in virtual time looks for ejects"},
		{id: "T16", target: "instructions per pipe switch ≤ 1.15 ×, per wakeup ≤ 1.25 × EEVDF", parts: switchCost},
		{id: "T21", target: "`cpu.weight` shares within a tier: within 2 %", parts: weights},
		{id: "T22", target: "agent: ≤ 1 % of a core and ≤ 64 MiB at 110 pods; image ≤ 25 MiB; capabilities BPF and PERFMON only", parts: footprint, note: "of image and capabilities no record says anything: tests do"},
	}
}

// servers are the kinds of primary with a client and a ladder of their own.
var servers = []string{"memcached", "redis"}

// each visits every operating point of the ladders, with the densities there.
func (s set) each(visit func(l *ladder.Ladder, point string, densities []int)) {
	for _, l := range s {
		for _, p := range l.Points() {
			visit(l, p.Name, l.Densities(p.Name))
		}
	}
}

// growth is our quantile at the top density against our own at 0. The null point
// is a control and no target's.
func (s set) growth(q float64) []sample {
	var out []sample
	s.each(func(l *ladder.Ladder, point string, densities []int) {
		top := slices.Max(densities)
		if point == ladder.Null || top == 0 || densities[0] != 0 {
			return
		}
		idle, full := l.Arm(ours).Cell(point, 0), l.Arm(ours).Cell(point, top)
		s := of(l, place(l, point, top), full.TailRatio(idle, q), full, idle)
		if s.Known() && !stats.Enough(q, full.Paired(idle)) {
			s.Estimate, s.thin = stats.None(), true
		}
		out = append(out, s)
	})
	return out
}

// versus is our p99 against a base arm's at the steps kept.
func (s set) versus(base string, keep func(point string, density, top int) bool) []sample {
	var out []sample
	s.each(func(l *ladder.Ladder, point string, densities []int) {
		for _, d := range densities {
			if keep(point, d, slices.Max(densities)) {
				c, b := l.Arm(ours).Cell(point, d), l.Arm(base).Cell(point, d)
				out = append(out, of(l, place(l, point, d), c.TailRatio(b, .99), c, b))
			}
		}
	})
	return out
}

func flatTail(s set) []Part {
	s = s.of(servers...)
	every := func(point string, _, _ int) bool { return point != ladder.Null }
	return []Part{
		atMost(1.05, factor).part("p99 at top density against its own without background", s.growth(.99)),
		atMost(1.20, factor).part("p99.9 at top density against its own without background", s.growth(.999)),
		bound{limit: 1, notWorse: true, format: factor}.part("p99 against eevdf-tuned, every step", s.versus(tuned, every)),
	}
}

func idleCost(s set) []Part {
	// Also at the null point: that is what an idle node does all day.
	idle := func(_ string, density, _ int) bool { return density == 0 }
	return []Part{atMost(1.03, factor).part("p99 without background against eevdf", s.of(servers...).versus(stock, idle))}
}

func harvest(s set) []Part {
	var shares []sample
	s.of(servers...).each(func(l *ladder.Ladder, point string, densities []int) {
		for _, d := range densities {
			// With fewer spinners than CPUs nobody could use all of it.
			if c := l.Arm(ours).Cell(point, d); d > 0 && d >= c.PodCPUs {
				shares = append(shares, of(l, place(l, point, d), c.Harvest(), c))
			}
		}
	})
	var kept []sample
	s.of("bursty").each(func(l *ladder.Ladder, point string, densities []int) {
		top := slices.Max(densities)
		full, idle := l.Arm(ours).Cell(point, top), l.Arm(ours).Cell(point, 0)
		if top > 0 && densities[0] == 0 {
			kept = append(kept, of(l, place(l, point, top), full.Answered(idle), full, idle))
		}
	})
	return []Part{
		atLeast(.95, percent).part("background's share of what was left, with as many spinners as CPUs or more", shares),
		atLeast(.99, percent).part("bursty primary's throughput beside background against its own without", kept),
	}
}

func inversions(s set) []Part {
	var shares, longest []sample
	s.of(append([]string{"burst", "bursty", "wakeup", "chain", "weights"}, servers...)...).each(func(l *ladder.Ladder, point string, densities []int) {
		for _, d := range densities {
			c := l.Arm(ours).Cell(point, d)
			e := c.Inversion()
			shares = append(shares, of(l, place(l, point, d), e, c))
			most := e
			if e.Known() {
				most = exactly(float64(c.InversionMax), e.Seeds)
			}
			longest = append(longest, of(l, place(l, point, d), most, c).extreme())
		}
	})
	return []Part{
		atMost(1e-4, share).part("inversion time as a share of critical CPU time", shares),
		atMost(100e3, duration).part("longest inversion", longest),
	}
}

// exactly is a figure without an interval, of so many seeds.
func exactly(v float64, seeds int) stats.Estimate {
	return stats.Estimate{Figure: v, Low: v, High: v, Seeds: seeds}
}

func wakeups(s set) []Part {
	s = s.of("wakeup")
	busy := func(_ string, density, top int) bool { return density == top && top > 0 }
	return []Part{
		atMost(2, factor).part("p99 onto a CPU running background against onto an idle one", s.growth(.99)),
		bound{limit: 1, strict: true, format: factor}.part("p99 onto a CPU running background against eevdf-tuned", s.versus(tuned, busy)),
	}
}

func chain(s set) []Part {
	return []Part{atMost(1.10, factor).part("p99 at top density against its own without background", s.of("chain").growth(.99))}
}

// perOp is the primary's own figure of what one operation took.
const perOp = "ns_per_op"

// unmeasured is the modifier of arms without the probe: what they cost is the
// scheduler's alone.
const unmeasured = ":no-probe"

func switchCost(s set) []Part {
	var switches, wakes []sample
	s.of("pipe").each(func(l *ladder.Ladder, point string, densities []int) {
		a, b := l.Arm(ours+unmeasured), l.Arm(stock+unmeasured)
		if a == nil || b == nil {
			a, b = l.Arm(ours), l.Arm(stock)
		}
		for _, d := range densities {
			mine, theirs := a.Cell(point, d), b.Cell(point, d)
			into := &wakes
			if point == onOneCPU {
				into = &switches
			}
			*into = append(*into, of(l, place(l, point, d), mine.ValueRatio(theirs, perOp), mine, theirs))
		}
	})
	return []Part{
		atMost(1.15, factor).part("instructions per pipe switch against eevdf", switches),
		atMost(1.25, factor).part("instructions per wakeup against eevdf", wakes),
	}
}

// onOneCPU is the operating point of the pipe at which every hand-over is a
// switch; at the others it is a wakeup.
const onOneCPU = "one-cpu"

func weights(s set) []Part {
	var off []sample
	s.of("weights").each(func(l *ladder.Ladder, point string, densities []int) {
		for _, d := range densities {
			c := l.Arm(ours).Cell(point, d)
			e, pod := c.ShareError()
			s := of(l, place(l, point, d), e, c)
			s.detail = "pod " + pod // another one may be worst next time: it is the same step
			off = append(off, s)
		}
	})
	return []Part{atMost(.02, percent).part("farthest that a pod's share is from its weight's", off)}
}
