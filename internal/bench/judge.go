// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// The bounds of a valid window.
const (
	// ledgerTolerance is how far the ledger's parts may be from its whole.
	ledgerTolerance = 0.005
	// lagBound is the client's own p99 delay that is still no bottleneck.
	lagBound = 50 * time.Microsecond
	// runDelayRatio is the share of the window that the client may have
	// waited for its CPU.
	runDelayRatio = 0.01
	// offeredSigmas is how far the drawn arrivals may be from the rate, in
	// standard deviations of a Poisson count; a constant rate is off by two
	// requests at most, one at each end.
	offeredSigmas = 5
	constantSlack = 2
	// quietRatio is the idle share to be reached before the first window. On a
	// machine with work of its own it is less, and the work is in the figures.
	quietRatio     = 0.99
	quietRatioHost = 0.9
	// workTolerance is how far the work that a primary did may be from what
	// its arrivals should have cost, and from what the ledger says it used.
	workTolerance = 0.05
	// idleBound is how many CPUs may be idle where pods saturate the node.
	idleBound = 0.05
	// sleepTolerance is how far a hand-over may be from one sleep of each side.
	sleepTolerance = 0.1
	// clockTolerance is how far two clocks may differ over a window.
	clockTolerance = 0.001
)

// Judge decides whether a record may be used. It reads nothing but the record,
// so that anyone can repeat the verdict later. A void record is kept, with all
// its reasons, and no figure is made of it.
func Judge(r *Record) Verdict {
	var reasons []string
	w := &r.Window
	if r.countsLosses() {
		reasons = append(reasons, judgeEnds(r)...)
	} else {
		reasons = append(reasons, judgeSched(r.Arm, w.Sched)...)
	}
	reasons = append(reasons, judgeBypass(r)...)
	reasons = append(reasons, judgeAgent(r)...)
	reasons = append(reasons, judgeArm(r)...)
	reasons = append(reasons, judgeStep(r)...)
	reasons = append(reasons, judgePrimary(r)...)
	reasons = append(reasons, judgeWork(r)...)
	reasons = append(reasons, judgeLimits(r)...)
	reasons = append(reasons, judgeProbe(r)...)
	reasons = append(reasons, judgeClock(r)...)
	if off := w.Ledger.Error(); math.Abs(off) > ledgerTolerance {
		reasons = append(reasons, fmt.Sprintf("CPU ledger off by %+.2f %%", 100*off))
	}
	quiet := quietRatio
	if !r.Machine.Virtual() && r.Machine.Clock != "" {
		quiet = quietRatioHost
	}
	if w.IdleBefore < quiet {
		reasons = append(reasons, fmt.Sprintf("node was only %.1f %% idle before the first window", 100*w.IdleBefore))
	}
	return Verdict{Valid: len(reasons) == 0, Reasons: reasons}
}

// judgeSched demands that the expected scheduler was live in every sample. The
// sequence number proves it for the time between them: every attach moves it.
func judgeSched(arm Arm, samples []SchedSample) []string {
	if len(samples) < 2 {
		return []string{"the live scheduler was not sampled before and after"}
	}
	ops := arm.Ops
	if arm.Exec != nil {
		// Its own name is known once it is attached.
		if ops = samples[0].Ops; ops == "" {
			return []string{fmt.Sprintf("scheduler at %v was %s (state %q), expected that of %s", samples[0].At, schedName(ops), samples[0].State, arm.Exec.Program)}
		}
	}
	for _, s := range samples {
		live := ""
		if s.State != "" && s.State != "disabled" {
			live = s.Ops
		}
		if live != ops || (ops != "" && s.State != "enabled") {
			return []string{fmt.Sprintf("scheduler at %v was %s (state %q), expected %s", s.At, schedName(live), s.State, schedName(ops))}
		}
		if ops != "" && s.All != nil && !*s.All {
			return []string{fmt.Sprintf("scheduler at %v was %s for some threads only: the kernel's own ran the others", s.At, ops)}
		}
		if s.EnableSeq != samples[0].EnableSeq {
			return []string{fmt.Sprintf("a scheduler was attached at or before %v: enable_seq went from %d to %d", s.At, samples[0].EnableSeq, s.EnableSeq)}
		}
	}
	return nil
}

// judgeBypass demands that the kernel asked the scheduler in force all the time: in
// bypass, which is how it begins to end one, it runs every thread by itself.
func judgeBypass(r *Record) []string {
	if r.Window.Probe == nil || r.countsLosses() {
		return nil
	}
	var reasons []string
	counters := r.Window.Probe.Counters
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if c := counters[name]; strings.Contains(name, "_BYPASS_") && c.After != c.Before {
			reasons = append(reasons, fmt.Sprintf("%s went from %d to %d: the kernel went past the scheduler", name, c.Before, c.After))
		}
	}
	return reasons
}

func schedName(ops string) string {
	if ops == "" {
		return "the kernel's own"
	}
	return ops
}

// judgeArm demands that the node was run as the arm's name says.
func judgeArm(r *Record) []string {
	arm, err := ParseArm(r.Arm.Name)
	if err != nil {
		return []string{err.Error()}
	}
	var reasons []string
	got := r.Arm
	got.Exec, arm.Exec = nil, nil // the name says no more than the program's
	if !slices.Equal(got.Cmdline, arm.Cmdline) || got.flags() != arm.flags() {
		reasons = append(reasons, fmt.Sprintf("arm %s is not described as one", r.Arm.Name))
	}
	words := strings.Fields(r.Machine.Cmdline)
	for _, a := range Arms() {
		for _, word := range a.Cmdline {
			if want := slices.Contains(arm.Cmdline, word); slices.Contains(words, word) != want {
				reasons = append(reasons, fmt.Sprintf("kernel line has %s: %v, expected under %s: %v", word, !want, r.Arm.Name, want))
			}
		}
	}
	weight, ok := r.Window.Weights[BestEffort]
	if !ok && arm.BackgroundIdle {
		reasons = append(reasons, fmt.Sprintf("weight of %s was not read, expected cpu.idle", BestEffort))
	}
	if ok && (weight == 0) != arm.BackgroundIdle {
		reasons = append(reasons, fmt.Sprintf("weight of %s is %d, expected cpu.idle: %v", BestEffort, weight, arm.BackgroundIdle))
	} else if ok && r.Scenario.Peers == nil && (weight > 1) != arm.Inverted {
		reasons = append(reasons, fmt.Sprintf("weight of %s is %d, expected critical's: %v", BestEffort, weight, arm.Inverted))
	}
	if cpus, ok := r.Window.Cpusets[BestEffort]; ok != arm.Static {
		reasons = append(reasons, fmt.Sprintf("cpuset of %s is %q, expected CPUs of its own: %v", BestEffort, cpus, arm.Static))
	}
	return reasons
}

// BestEffort is the cgroup that holds the background pods.
const BestEffort = "/kubepods/besteffort"

// flags are the parts of an arm that its name determines.
func (a Arm) flags() [3]string {
	return [3]string{a.Ops, a.Lend, fmt.Sprint(a.BackgroundIdle, a.Static, a.Inverted, a.Again, a.NoProbe, a.NoPreempt, a.QuotaPeriod, a.QuotaBurst, a.NoLimit)}
}

// judgeStep demands that the window is a step of its scenario.
func judgeStep(r *Record) []string {
	step, steps := r.Window.Step, r.Scenario.Steps()
	if step.Index < 0 || step.Index >= len(steps) || steps[step.Index] != step {
		return []string{fmt.Sprintf("step %d with %d spinners at %g requests a second is none of the scenario's", step.Index, step.Density, step.Rate)}
	}
	return nil
}

func judgePrimary(r *Record) []string {
	var reasons []string
	p := r.Window.Primary
	if p.Latency != nil && (p.Latency.Count() != int64(p.Requests-p.Lost) || p.Requests == 0) {
		reasons = append(reasons, fmt.Sprintf("%d latencies for %d requests, %d of them lost", p.Latency.Count(), p.Requests, p.Lost))
	}
	if p.Latency == nil && p.Ops == 0 && len(r.Window.Pods) == 0 {
		reasons = append(reasons, "the primary reported nothing")
	}
	if p.Lost > 0 || p.Wrong > 0 {
		reasons = append(reasons, fmt.Sprintf("%d requests lost, %d answered wrongly", p.Lost, p.Wrong))
	}
	switch kind := r.Scenario.KindOf(); {
	case kind.Tool:
		reasons = append(reasons, judgeTool(r)...)
	case kind.Server:
		reasons = append(reasons, judgeClient(r)...)
	}
	return reasons
}

// judgeClient demands that the client asked what it was to ask, when it was to.
func judgeClient(r *Record) []string {
	var reasons []string
	p, l, rate := r.Window.Primary, r.Scenario.Load, r.Window.Step.Rate
	if p.Latency == nil || p.Lag == nil {
		return []string{"the client reported no latencies"}
	}
	if lag := p.Lag.Quantile(.99); lag > lagBound {
		reasons = append(reasons, fmt.Sprintf("client was the bottleneck: it sent %v late at p99, bound %v", lag, lagBound))
	}
	if r := ratio(p.RunDelay, l.Window); r > runDelayRatio {
		reasons = append(reasons, fmt.Sprintf("client waited %.2f %% of the window for its CPU", 100*r))
	}
	want, slack := rate*l.Window.Seconds(), float64(constantSlack)
	if l.Arrivals == ArrivalsPoisson {
		slack = offeredSigmas * math.Sqrt(want)
	}
	if math.Abs(float64(p.Requests)-want) > slack || math.Abs(p.Offered*l.Window.Seconds()-float64(p.Requests)) > .5 {
		reasons = append(reasons, fmt.Sprintf("client drew %d requests, %.0f a second, scenario asks for %.0f", p.Requests, p.Offered, rate))
	}
	return reasons
}

// judgeClock demands that time passed as it should: the counters were read when
// they were due, two clocks agree on when, and the samples lie in order.
func judgeClock(r *Record) []string {
	var reasons []string
	w, l := &r.Window, r.Scenario.Load
	if off := w.Ledger.Length - l.Counted(); off.Abs() > max(l.Pad, time.Millisecond) {
		reasons = append(reasons, fmt.Sprintf("clock jumped: the window and its pads took %v, expected %v", w.Ledger.Length, l.Counted()))
	}
	if off := w.Realtime - w.Ledger.Length; math.Abs(ratio(off, w.Ledger.Length)) > clockTolerance {
		reasons = append(reasons, fmt.Sprintf("clock jumped: the window took %v by the real-time clock, %v by the monotonic one", w.Realtime, w.Ledger.Length))
	}
	for i, s := range w.Sched {
		if i > 0 && s.At < w.Sched[i-1].At {
			reasons = append(reasons, fmt.Sprintf("clock jumped: a sample at %v follows one at %v", s.At, w.Sched[i-1].At))
			break
		}
	}
	late := time.Duration(0)
	if r.Scenario.Instrument {
		late = -l.Pad / 2 // the client has to send what was due meanwhile
	}
	if w.ReadBy != 0 && w.ReadBy > late {
		reasons = append(reasons, fmt.Sprintf("the reading of the counters before the window ended at %v, want %v at most", w.ReadBy, late))
	}
	if n := len(w.Sched); n >= 2 && (w.Sched[0].At > 0 || w.Sched[n-1].At < l.Window) {
		reasons = append(reasons, fmt.Sprintf("the scheduler was sampled from %v to %v, which is not the whole window", w.Sched[0].At, w.Sched[n-1].At))
	}
	return reasons
}

// What a primary that measures itself says of its own work, in Result.Values.
const (
	ValueBusy     = "busy_ns"         // CPU time that its threads used in the window
	ValueClaimed  = "claimed_ns"      // what its arrivals should have cost
	ValueSwitches = "switches_per_op" // how often a thread left its CPU in a hand-over
)

// workOff is how far CPU time is from what the work should have cost. What a limit
// costs beyond the work is no fault of the window's: it is what is looked for.
func workOff(busy, claimed float64, limited bool) float64 {
	if limited {
		return claimed - busy
	}
	return math.Abs(busy - claimed)
}

// judgeWork demands that a primary that measures itself did what it says.
func judgeWork(r *Record) []string {
	var reasons []string
	p, l, values := r.Scenario.Primary, r.Scenario.Load, r.Window.Primary.Values
	busy, hasBusy := values[ValueBusy]
	// An arrival at either end of the window is there in part.
	ends := float64(p.Threads) * (p.Params["burst_us"] + p.Params["unit_us"]) * 1e3
	if claimed, ok := values[ValueClaimed]; ok && hasBusy && workOff(busy, claimed, p.LimitMilliCPU > 0) > workTolerance*claimed+ends {
		reasons = append(reasons, fmt.Sprintf("primary used %.0f ms of CPU time, its arrivals should have cost %.0f ms", busy/1e6, claimed/1e6))
	}
	if ledger := r.Window.Ledger; hasBusy && l.Window > 0 {
		used := float64(ledger.Critical) * ratio(l.Window, ledger.Length)
		// The ledger counts the pads too, in which any number of them may be busy.
		if slack := workTolerance*busy + ends + float64(2*l.Pad)*float64(ledger.PodCPUs); math.Abs(used-busy) > slack {
			reasons = append(reasons, fmt.Sprintf("primary says that it used %.0f ms of CPU time, the ledger says %.0f ms", busy/1e6, used/1e6))
		}
	}
	reasons = append(reasons, judgeOffered(r)...)
	if idle := ratio(r.Window.Ledger.Idle, r.Window.Ledger.Length); r.Scenario.KindOf().Saturates && idle > idleBound {
		reasons = append(reasons, fmt.Sprintf("%.2f CPUs were idle: the pods did not want more than there was", idle))
	}
	if switches, ok := values[ValueSwitches]; ok && math.Abs(switches-1) > sleepTolerance {
		reasons = append(reasons, fmt.Sprintf("%.2f switches in a hand-over, want 1", switches))
	}
	return reasons
}

// judgeOffered demands that a primary with arrivals of its own drew as many as
// the step asks for.
func judgeOffered(r *Record) []string {
	p, rate, window := r.Window.Primary, r.Window.Step.Rate, r.Scenario.Load.Window.Seconds()
	kind := r.Scenario.KindOf()
	if kind.Server || rate == 0 {
		return nil
	}
	if kind.Agent && p.Offered > 0 {
		window = float64(p.Ops) / p.Offered // pods come for a part of it
	}
	if want := rate * window; math.Abs(p.Offered*window-want) > offeredSigmas*math.Sqrt(want) {
		return []string{fmt.Sprintf("primary drew %.0f arrivals a second, scenario asks for %.0f", p.Offered, rate)}
	}
	return nil
}

// judgeProbe demands the probe in every arm that has one, and that it saw all.
// A cluster's node has the agent's own, if any.
func judgeProbe(r *Record) []string {
	probe := r.Window.Probe
	if probe == nil && r.Machine.Cluster != nil {
		return nil
	}
	if has := probe != nil; has == r.Arm.NoProbe {
		return []string{fmt.Sprintf("probe ran: %v, expected under %s: %v", has, r.Arm.Name, !has)}
	}
	if probe == nil {
		return nil
	}
	var reasons []string
	for _, name := range []string{"probe_tasks_missed", "probe_groups_missed"} {
		if c := probe.Counters[name]; c.After != c.Before {
			reasons = append(reasons, fmt.Sprintf("%s went from %d to %d: the probe's figures lack them", name, c.Before, c.After))
		}
	}
	return reasons
}
