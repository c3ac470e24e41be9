// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"time"
)

// The operating points of the kind that measures the node agent: what happens
// to the node in the window. Pods that come and go have points of any other
// name, with a rate.
const (
	PointQuiet   = "quiet"   // nothing
	PointScraped = "scraped" // its metrics are read once a second
	PointRestart = "restart" // it ends as kubelet ends it, and comes again; then it is killed
	PointUpgrade = "upgrade" // another build takes its place, with another BPF object
	PointEject   = "eject"   // SysRq-S takes the scheduler away
)

// What such a window says, in Result.Values.
const (
	ValueStock     = "stock_ns"         // the kernel's own scheduler ran
	ValueAgentCPUs = "agent_cpus"       // CPU time of the agent by time
	ValueAgentPeak = "agent_peak_bytes" // the most it had resident
	ValueStarts    = "agent_starts"     // agents that took over
	ValueAlone     = "alone_ns"         // the longest time in which no agent held the scheduler
	ValueNoticed   = "noticed_ns"       // from the eject until the node object says so
	ValueBack      = "back_ns"          // from the eject until the scheduler is attached again
)

// podLagBound is how late pods may be made for the rate to be what it says. A pod
// takes milliseconds to make, and its latency counts from when it is there: that
// it came late hides nothing.
const podLagBound = 50 * time.Millisecond

// agentValues are those that a window must have.
func agentValues(point string) []string {
	switch point {
	case PointQuiet, PointScraped:
		return []string{ValueAgentCPUs, ValueAgentPeak}
	case PointRestart, PointUpgrade:
		return []string{ValueStock, ValueStarts, ValueAlone}
	case PointEject:
		return []string{ValueStock, ValueNoticed, ValueBack}
	}
	return []string{ValueStock}
}

// countsLosses says whether a scheduler's end and the next one's begin belong to
// what is measured: how long the node was without one. Void, such a window would
// hide what it is there to find.
func (r *Record) countsLosses() bool {
	return r.Scenario.KindOf().Agent && slices.Contains(agentValues(r.Window.Step.Point), ValueStock)
}

// judgeAgent demands what the window is for, and that nothing else happened.
func judgeAgent(r *Record) []string {
	if !r.Scenario.KindOf().Agent {
		return nil
	}
	var reasons []string
	values, point := r.Window.Primary.Values, r.Window.Step.Point
	for _, name := range agentValues(point) {
		if _, ok := values[name]; !ok {
			reasons = append(reasons, name+" is missing")
		}
	}
	if p := r.Window.Primary; r.Window.Step.Rate > 0 {
		switch {
		case p.Latency == nil || p.Lag == nil:
			reasons = append(reasons, "no pod became effective")
		case p.Lag.Quantile(.99) > podLagBound:
			reasons = append(reasons, fmt.Sprintf("pods were made %v late at p99, bound %v", p.Lag.Quantile(.99), podLagBound))
		}
	}
	return reasons
}

// judgeEnds demands ours before and after, and another one after an upgrade or an eject.
func judgeEnds(r *Record) []string {
	samples, point := r.Window.Sched, r.Window.Step.Point
	if len(samples) < 2 {
		return judgeSched(r.Arm, samples)
	}
	first, last := samples[0], samples[len(samples)-1]
	if (point == PointUpgrade || point == PointEject) && last.EnableSeq == first.EnableSeq {
		return []string{"no scheduler was attached in the window: nothing was replaced"}
	}
	last.EnableSeq = first.EnableSeq
	return judgeSched(r.Arm, []SchedSample{first, last})
}
