// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// consistent compares figures that are in a record twice.
func consistent(r *bench.Record) []string {
	var out []string
	p, w := r.Window.Primary, r.Scenario.Load.Window
	if p.Latency != nil && len(p.Slowest) > 0 {
		if top := p.Slowest[0].Latency; !near(top, p.Latency.Max()) {
			out = append(out, fmt.Sprintf("its slowest answer took %v, but its histogram ends at %v", top, p.Latency.Max()))
		}
		if !slices.IsSortedFunc(p.Slowest, func(a, b bench.Slow) int { return int(b.Latency - a.Latency) }) {
			out = append(out, "its slowest answers are not in order")
		}
	}
	if most := float64(p.Requests)/w.Seconds()*2 + 1e3; r.Scenario.KindOf().Server && p.Achieved > most {
		out = append(out, fmt.Sprintf("%.0f answers a second to %d requests in %v", p.Achieved, p.Requests, w))
	}
	if lag := p.Lag; lag != nil && lag.Count() > 0 && uint64(lag.Count()) != uint64(p.Requests) {
		out = append(out, fmt.Sprintf("the client's lag at %d requests, of %d", lag.Count(), p.Requests))
	}
	out = append(out, contained(r)...)
	out = append(out, rates(r)...)
	out = append(out, timed(r.Machine)...)
	if seed := guestSeed(r); seed != "" && seed != strconv.FormatUint(r.Seed, 10) {
		out = append(out, "its guest had seed "+seed)
	}
	if order, planned := plannedOrder(r); planned && order != r.Order {
		out = append(out, fmt.Sprintf("it was run %d of its campaign, and by its plan is %d", r.Order, order))
	}
	for _, pod := range r.Window.Pods {
		if pod.CPUTime < 0 || pod.CPUTime > r.Window.Ledger.Length*time.Duration(r.Window.Ledger.CPUs) {
			out = append(out, fmt.Sprintf("pod %s used %v in a window of %v on %d CPUs", pod.Name, pod.CPUTime, r.Window.Ledger.Length, r.Window.Ledger.CPUs))
		}
	}
	return out
}

// ratesTolerance is how far a rate may be from what it was computed of.
const ratesTolerance = 0.001

// rates compares what primaries without a client say of themselves in two ways.
func rates(r *bench.Record) []string {
	p := r.Window.Primary
	off := func(a, b float64) bool { return math.Abs(a-b) > ratesTolerance*math.Max(math.Abs(a), math.Abs(b)) }
	switch cost := p.Values["ns_per_op"]; {
	case r.Scenario.Primary.Kind == "pipe" && cost > 0 && p.Achieved > 0 && off(cost*p.Achieved, 1e9):
		return []string{fmt.Sprintf("%.1f ns an operation, and %.0f of them a second", cost, p.Achieved)}
	case r.Scenario.Primary.Kind == "bursty" && p.Ops > 0 && off(p.Achieved, float64(p.Ops)/r.Scenario.Load.Window.Seconds()):
		return []string{fmt.Sprintf("%d operations in %v, and %.0f of them a second", p.Ops, r.Scenario.Load.Window, p.Achieved)}
	}
	return nil
}

// timed demands of a clock per vCPU what makes one.
func timed(m bench.Machine) []string {
	if m.Clock == bench.ClockPerVCPU && (m.Accel != "tcg" || m.PluginSHA256 == "" || m.ClockQuantum <= 0) {
		return []string{fmt.Sprintf("its clock is %q, of accelerator %q, plugin %q and quantum %v", m.Clock, m.Accel, m.PluginSHA256, m.ClockQuantum)}
	}
	return nil
}

// plannedOrder is the run's place in its campaign by its plan. An arm or a seed that was
// taken out of plan and file alike leaves a gap.
func plannedOrder(r *bench.Record) (order int, planned bool) {
	if len(r.Plan.Arms) == 0 || r.Seed < r.Plan.SeedFirst || r.Seed-r.Plan.SeedFirst >= bench.MaxSeeds {
		return 0, false
	}
	index := int(r.Seed - r.Plan.SeedFirst)
	arms := make([]bench.Arm, len(r.Plan.Arms))
	for i, name := range r.Plan.Arms {
		arms[i].Name = name
	}
	at := slices.IndexFunc(bench.Rotate(arms, index), func(a bench.Arm) bool { return a.Name == r.Arm.Name })
	return index*len(arms) + at, at >= 0
}

// contained compares what is part of something with the whole: waits, and pods' time.
func contained(r *bench.Record) []string {
	var out []string
	if p := r.Window.Probe; p != nil {
		for _, name := range slices.Sorted(maps.Keys(p.Tiers)) {
			t := p.Tiers[name]
			if t.Delay != nil && t.WorstWait > 0 && !atMost(t.Delay.Max(), t.WorstWait) {
				out = append(out, fmt.Sprintf("tier %s: a wakeup waited for %v, nobody longer than %v", name, t.Delay.Max(), t.WorstWait))
			}
			if t.WorstWait > 0 && t.InversionMax > t.WorstWait {
				out = append(out, fmt.Sprintf("tier %s: an inversion of %v, and no wait longer than %v", name, t.InversionMax, t.WorstWait))
			}
			if (t.InversionMax == 0) != (t.Inversion == 0) || t.InversionMax > t.Inversion {
				out = append(out, fmt.Sprintf("tier %s: inversions of %v in all, %v at most", name, t.Inversion, t.InversionMax))
			}
		}
	}
	used := map[string]time.Duration{}
	for _, pod := range r.Window.Pods {
		used[pod.Tier] += pod.CPUTime
	}
	for tier, whole := range map[string]time.Duration{"critical": r.Window.Ledger.Critical, "background": r.Window.Ledger.Background} {
		if sum, ok := used[tier]; ok && math.Abs(float64(sum-whole)) > podsTolerance*float64(r.Window.Ledger.Length) {
			out = append(out, fmt.Sprintf("its %s pods used %v, its ledger has %v", tier, sum, whole))
		}
	}
	slices.Sort(out)
	return out
}

// podsTolerance is how far the pods' CPU time may be from their tier's, as a share of a
// CPU: the two are read one after the other.
const podsTolerance = 0.01

func atMost(a, b time.Duration) bool { return a <= b || near(a, b) }

// guestSeed is the seed that the emulator's arguments name; "" if there is none, if one
// guest serves several seeds, or if the arm is a repetition, whose guest has another one.
func guestSeed(r *bench.Record) string {
	args := r.Machine.EmulatorArgs
	if i := slices.Index(args, "-seed"); i >= 0 && i+1 < len(args) && !r.Arm.Again && r.Machine.Clock != bench.ClockOpen {
		return args[i+1]
	}
	return ""
}

// sameInstrument compares the programs that all arms of a set share.
func sameInstrument(was, is *bench.Record) []string {
	var out []string
	for _, f := range []struct{ name, was, is string }{
		{"program temper-lab-node", was.Build.NodeSHA256, is.Build.NodeSHA256},
		{"Go toolchain", was.Build.Go, is.Build.Go},
	} {
		if f.was != f.is {
			out = append(out, fmt.Sprintf("%s was %q, is %q", f.name, f.was, f.is))
		}
	}
	return out
}
