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

// replaces says whether a scheduler's end and the next one's begin belong to
// what is measured.
func (r *Record) replaces() bool {
	return r.Scenario.KindOf().Agent && slices.Contains([]string{PointUpgrade, PointEject}, r.Window.Step.Point)
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

// judgeReplaced demands ours before and after, with one attach between.
func judgeReplaced(arm Arm, samples []SchedSample) []string {
	if len(samples) < 2 {
		return judgeSched(arm, samples)
	}
	first, last := samples[0], samples[len(samples)-1]
	if attaches := last.EnableSeq - first.EnableSeq; attaches != 1 {
		return []string{fmt.Sprintf("%d schedulers were attached in the window, expected 1", attaches)}
	}
	last.EnableSeq = first.EnableSeq
	return judgeSched(arm, []SchedSample{first, last})
}
