// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// The bounds of a window with CPU limits.
const (
	// wantsLimit is the share of its limit that a primary without a rate must
	// have used under the kernel's own scheduler: else it did not want it.
	wantsLimit = 0.9
	// periodsRatio is the share of the window's periods that the kernel must
	// have counted while it enforced a limit on work that never ends.
	periodsRatio = 0.9
	// booksTolerance is how much more CPU time than the kernel's book the probe
	// may have seen, which counts interrupts to the thread that they interrupt.
	booksTolerance = 0.03
	// changeLate is how late a limit may be changed.
	changeLate = 5 * time.Millisecond
	// toolBusy is the share of its CPU that a server's own client may use, and
	// toolDelay what its threads may wait for it, as a share of their time.
	toolBusy  = 0.8
	toolDelay = 0.1
)

// The counters of cpu.stat that limits have.
const (
	CountUsage     = "usage_usec"
	CountPeriods   = "nr_periods"
	CountThrottled = "nr_throttled"
)

// judgeLimits demands that the limits in force were those of scenario and arm,
// and that the kernel enforced them where that was its part. Where a sched_ext
// scheduler runs the node, whether it holds the limit is what is measured, and
// no reason to leave a window out.
func judgeLimits(r *Record) []string {
	var reasons []string
	want := r.Scenario.Primary.Limited()
	if got := len(r.Window.Limits); got != len(want) {
		return []string{fmt.Sprintf("%d limited cgroups, the scenario has %d", got, len(want))}
	}
	for i, limited := range want {
		l := &r.Window.Limits[i]
		if l.Name != limited.Name {
			return []string{fmt.Sprintf("limit %d is that of %s, the scenario has %s there", i, l.Name, limited.Name)}
		}
		reasons = append(reasons, judgeInForce(r, l, limited.LimitMilliCPU)...)
		reasons = append(reasons, judgeChanges(r, l)...)
		reasons = append(reasons, judgeEnforced(r, l)...)
	}
	return append(reasons, judgeMeasured(r)...)
}

// judgeInForce compares what the kernel's files said with the arm.
func judgeInForce(r *Record, l *Limit, milliCPU int) []string {
	var reasons []string
	for _, at := range []struct {
		when      string
		got, want Quota
	}{
		{"before", l.Before, r.Arm.Quota(milliCPU)},
		{"after", l.After, r.Arm.Quota(r.Scenario.Primary.lastLimit(milliCPU))},
	} {
		if at.got != at.want {
			reasons = append(reasons, fmt.Sprintf("limit of %s %s the window was %v, %s asks for %v", l.Name, at.when, at.got, r.Arm.Name, at.want))
		}
	}
	return reasons
}

// String is "150ms in 100ms, burst 150ms".
func (q Quota) String() string {
	text := "no limit"
	if q.Quota > 0 {
		text = fmt.Sprintf("%v in %v", q.Quota, q.Period)
	}
	if q.Burst > 0 {
		text += fmt.Sprintf(", burst %v", q.Burst)
	}
	return text
}

// judgeChanges demands the scenario's changes, each in its time.
func judgeChanges(r *Record, l *Limit) []string {
	steps := r.Scenario.Primary.LimitSteps
	if len(l.Changes) != len(steps) {
		return []string{fmt.Sprintf("limit of %s was changed %d times, the scenario says %d", l.Name, len(l.Changes), len(steps))}
	}
	for i, step := range steps {
		c := l.Changes[i]
		if c.From < step.At || c.To > step.At+changeLate || c.To < c.From || c.Quota != r.Arm.Quota(step.LimitMilliCPU) {
			return []string{fmt.Sprintf("limit of %s was changed to %v from %v to %v, the scenario says %v at %v", l.Name, c.Quota, c.From, c.To, r.Arm.Quota(step.LimitMilliCPU), step.At)}
		}
	}
	return nil
}

// judgeEnforced demands the kernel's own evidence: its bandwidth control works
// only for its own scheduler's threads, and there it must have worked.
func judgeEnforced(r *Record, l *Limit) []string {
	moved := func(name string) int64 { return l.Counters[name].After - l.Counters[name].Before }
	if r.Arm.Scheduled() || l.Before.Quota == 0 {
		if n := moved(CountThrottled); n > 0 {
			return []string{fmt.Sprintf("the kernel throttled %s %d times, but under %s it is not the kernel that limits it", l.Name, n, r.Arm.Name)}
		}
		return nil
	}
	var reasons []string
	length := r.Window.Ledger.Length
	used := time.Duration(moved(CountUsage)) * time.Microsecond
	// The longest stretches at the highest limit bound what may have been used.
	most, burst, period := l.Before.CPUs(), l.Before.Quota+l.Before.Burst, l.Before.Period
	for _, c := range l.Changes {
		most, burst = max(most, c.Quota.CPUs()), burst+c.Quota.Quota+c.Quota.Burst
	}
	// A tick's overrun for each CPU of the pods comes on top.
	bound := time.Duration(most*float64(length)) + burst + time.Duration(r.Window.Ledger.PodCPUs)*4*time.Millisecond
	if used > bound {
		reasons = append(reasons, fmt.Sprintf("%s used %v of CPU time in %v, its limit allows %v: it was not in force", l.Name, used, length, bound))
	}
	saturates := r.Window.Step.Rate == 0 && l.Name == PodLimit
	if !saturates {
		return reasons
	}
	if n, all := moved(CountPeriods), ratio(length, period); float64(n) < periodsRatio*math.Floor(all) {
		reasons = append(reasons, fmt.Sprintf("the kernel counted %d periods of %s in %v, want about %.0f: the limit was not in force", n, l.Name, length, all))
	}
	if least := wantsLimit * l.Before.CPUs() * float64(length); len(l.Changes) == 0 && float64(used) < least {
		reasons = append(reasons, fmt.Sprintf("%s used %v of CPU time, its limit is %v: it did not want it", l.Name, used, time.Duration(l.Before.CPUs()*float64(length))))
	}
	return reasons
}

// judgeMeasured demands the figures that the scenario's kind promises.
func judgeMeasured(r *Record) []string {
	limits := r.Window.Limits
	if len(limits) == 0 || r.Arm.NoLimit {
		return nil
	}
	pod := limits[0]
	if r.Window.Primary.Latency == nil {
		return []string{"nothing was begun in the window"}
	}
	if !slices.Contains([]string{UseByStamps, UseBySamples}, pod.By) {
		return []string{fmt.Sprintf("use of %s is measured by %q, which is no way", pod.Name, pod.By)}
	}
	if reasons := judgeBooks(r, pod); reasons != nil {
		return reasons
	}
	for _, u := range pod.Uses {
		if u.Min < 0 || u.Max < u.Min {
			return []string{fmt.Sprintf("use of %s over %v is %.3f to %.3f of its quota", pod.Name, u.Span, u.Min, u.Max)}
		}
	}
	if r.Scenario.Load.Window >= LongSpan && len(pod.Changes) == 0 {
		if _, ok := pod.Use(LongSpan); !ok {
			return []string{fmt.Sprintf("use of %s was not measured over %v", pod.Name, LongSpan)}
		}
	}
	return nil
}

// judgeBooks demands that the kernel's book of the pod's CPU time is not short,
// where use is read from that book: under sched_ext it may be, and then nobody
// knows what was used. Work that stamps its own units needs no book.
func judgeBooks(r *Record, pod Limit) []string {
	probe := r.Window.Probe
	if pod.By != UseBySamples || probe == nil {
		return nil
	}
	book, seen := r.Window.Ledger.Critical, probe.Tiers["critical"].CPUTime
	if over := ratio(seen, book) - 1; over > booksTolerance {
		return []string{fmt.Sprintf("%s used %v of CPU time by the kernel's book and %v by the probe: how much of its limit is not known", pod.Name, book, seen)}
	}
	return nil
}

// judgeTool demands that a server's own client had time to spare and worked
// before, through and after the window.
func judgeTool(r *Record) []string {
	var reasons []string
	p, l, step := r.Window.Primary, r.Scenario.Load, r.Window.Step
	if p.Latency == nil {
		return []string{"the client reported no latencies"}
	}
	if busy := ratio(r.Window.Ledger.Instrument, r.Window.Ledger.Length); busy > toolBusy {
		reasons = append(reasons, fmt.Sprintf("client was the bottleneck: it used %.0f %% of its CPU, bound %.0f %%", 100*busy, 100*toolBusy))
	}
	if waited := ratio(p.RunDelay, l.Window*time.Duration(r.Scenario.Clients(step))); waited > toolDelay {
		reasons = append(reasons, fmt.Sprintf("client's threads waited %.2f %% of their time for their CPU", 100*waited))
	}
	first, last := p.Values[ValueFirst], p.Values[ValueLast]
	if first > 0 || last < float64(l.Window) {
		reasons = append(reasons, fmt.Sprintf("client's transactions ended from %v to %v, which is not the whole window", time.Duration(first), time.Duration(last)))
	}
	if want := step.Rate * l.Window.Seconds(); step.Rate > 0 && math.Abs(float64(p.Requests)-want) > offeredSigmas*math.Sqrt(want) {
		reasons = append(reasons, fmt.Sprintf("client drew %d transactions, scenario asks for %.0f", p.Requests, want))
	}
	return reasons
}

// What a server's own client says of itself, in Result.Values.
const (
	ValueFirst   = "first_end_ns"       // of its first transaction, since the window's start
	ValueLast    = "last_end_ns"        // of its last
	ValueSilence = "longest_silence_ns" // in the window, between two ends
)
