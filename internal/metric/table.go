// SPDX-License-Identifier: Apache-2.0

// Package metric is every metric that the node agent exports, in one table, and
// the way from readings to Prometheus. docs/metrics.md is generated from the table.
//
// It knows nothing of where values come from, and registers nothing by itself.
package metric

// Kind is a metric's type, in Prometheus' words.
type Kind string

// The kinds.
const (
	Gauge     Kind = "gauge"
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
)

// Desc describes a metric.
type Desc struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []string
}

// ID is a metric of the table.
type ID int

// The metrics.
const (
	SchedulerAttached ID = iota
	SchedulerState
	SchedulerEjects
	AttachDuration
	PlanGeneration
	PlanApplyDuration
	PodEffective
	TierCPU
	TierWakeupDelay
	TierWorstWait
	WaitBound
	Inversion
	Preemptions
	FenceCPUs
	CriticalNotFenced
	Pods
	LimitPaced
	LimitsNotHeld
	ScxEvents
	APIConnected
	NodeWritesFailed
	BuildInfo
	SeriesDropped
	count
)

var table = [count]Desc{
	SchedulerAttached: {"temper_scheduler_attached", Gauge, "1 while Temper schedules this node, else 0.", nil},
	SchedulerState: {
		"temper_scheduler_state_info", Gauge, "Always 1. What the agent is to do (observe or enforce), the engine (attached, observe or safe), and the reason as the node's condition has it.",
		[]string{"mode", "state", "reason", "version", "kernel"},
	},
	SchedulerEjects: {
		"temper_scheduler_ejects_total", Counter, "How often an attached scheduler ended without the agent's doing, by reason.",
		[]string{"kind"},
	},
	AttachDuration:    {"temper_attach_duration_seconds", Histogram, "Time to attach or adopt, with the checks before.", nil},
	PlanGeneration:    {"temper_plan_generation", Gauge, "Plans applied since the attach; 0 while not attached.", nil},
	PlanApplyDuration: {"temper_plan_apply_duration_seconds", Histogram, "Time to put a plan in force.", nil},
	PodEffective:      {"temper_pod_effective_seconds", Histogram, "From the moment the agent could know a pod and its cgroup until its tier is in force.", nil},
	TierCPU:           {"temper_tier_cpu_seconds_total", Counter, "CPU time of a tier's threads.", []string{"tier"}},
	TierWakeupDelay:   {"temper_tier_wakeup_delay_seconds", Histogram, "From a thread becoming runnable until it runs.", []string{"tier"}},
	TierWorstWait:     {"temper_tier_worst_wait_seconds", Gauge, "The longest a thread was runnable and did not run, since the probe was started.", []string{"tier"}},
	WaitBound:         {"temper_wait_bound_seconds", Gauge, "The longest that any runnable thread waits, as promised.", nil},
	Inversion:         {"temper_inversion_seconds_total", Counter, "Time critical threads waited, beyond 32 µs each, while a lower tier ran where they may run; waits for a CPU limit count as well.", nil},
	Preemptions:       {"temper_preemptions_total", Counter, "CPUs that a tier's waking threads took from a lower tier, or from a peer that was ahead.", []string{"tier"}},
	FenceCPUs:         {"temper_fence_cpus", Gauge, "CPUs in fences.", nil},
	CriticalNotFenced: {"temper_critical_not_fenced", Gauge, "Critical pods without a fence: they outrank others, but have no cores planned for them.", nil},
	Pods:              {"temper_pods", Gauge, "Pods on this node whose cgroup is known.", []string{"tier"}},
	LimitPaced: {
		"temper_limit_paced_seconds_total", Counter, "Time in which a thread of the pod waited because of a CPU limit, summed over the pod's limits.",
		[]string{"namespace", "pod"},
	},
	LimitsNotHeld:    {"temper_limits_not_held_total", Counter, "CPU limits that came and found no room since the attach: they do nothing.", nil},
	ScxEvents:        {"temper_scx_events_total", Counter, "The kernel's own counters of sched_ext and what the probe missed, by their names.", []string{"event"}},
	APIConnected:     {"temper_api_connected", Gauge, "1 while the API server is heard of, else 0: the pods known are old then.", nil},
	NodeWritesFailed: {"temper_node_writes_failed_total", Counter, "Tries to write the node's condition and label that failed: while this grows the node says what may no longer hold.", nil},
	BuildInfo:        {"temper_build_info", Gauge, "Always 1.", []string{"version", "goversion"}},
	SeriesDropped:    {"temper_series_dropped", Gauge, "Series of pods that the bound on their number leaves out of this scrape.", nil},
}

// Desc returns the metric's description.
func (id ID) Desc() Desc { return table[id] }

// Sample is a metric's value under its labels.
type Sample struct {
	ID     ID
	Labels []string // values, in the order of the description
	Value  float64
	Dist   *Dist // of a histogram
}

// Is is the sample with that value.
func (id ID) Is(value float64, labels ...string) Sample {
	return Sample{ID: id, Labels: labels, Value: value}
}

// Counts is the sample of a histogram.
func (id ID) Counts(d Dist, labels ...string) Sample {
	return Sample{ID: id, Labels: labels, Dist: &d}
}

// Flag is 1 or 0.
func Flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
