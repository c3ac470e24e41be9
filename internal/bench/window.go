// SPDX-License-Identifier: Apache-2.0

package bench

import "time"

// Window is one step of the ladder as the node measured it.
type Window struct {
	Step    Step   `json:"step"`
	Primary Result `json:"primary"`
	// Pods are the pods and what each used of the ledger's length.
	Pods []Pod `json:"pods,omitempty"`
	// Probe is nil where the arm has none.
	Probe  *Probe `json:"probe,omitempty"`
	Ledger Ledger `json:"ledger"`
	// Realtime is the ledger's length by CLOCK_REALTIME: another opinion.
	Realtime time.Duration `json:"realtime_ns"`
	// ReadBy is when the reading of the counters before the window had ended,
	// since the window's start: it took somebody's CPU. 0 in records before it was known.
	ReadBy time.Duration `json:"read_by_ns,omitempty"`
	Sched  []SchedSample `json:"sched"`
	// Weights are the cpu.weight values in force, by cgroup path; 0 is
	// cpu.idle. Cpusets are the cpuset.cpus that were set.
	Weights map[string]int    `json:"weights"`
	Cpusets map[string]string `json:"cpusets,omitempty"`
	// Limits are the limited cgroups, the pod's first; none where the scenario
	// limits nothing.
	Limits []Limit `json:"limits,omitempty"`
	// IdleBefore is the share of idle CPU time before the first step, the
	// proof that boot work had ended.
	IdleBefore float64 `json:"idle_before"`
}

// Result is what the primary did in the window, as the client saw it or as it
// measured itself, and what the client says of itself.
type Result struct {
	// Latency is what the scenario says that it measures; nil if nothing.
	Latency *Hist `json:"latency,omitempty"`
	// Parts are further distributions by name: what Latency is made of.
	Parts map[string]*Hist `json:"parts,omitempty"`
	// Lag is actual minus intended send time: what the client itself added.
	// It is nil where the primary measures itself.
	Lag      *Hist   `json:"lag,omitempty"`
	Offered  float64 `json:"offered_rps,omitempty"` // arrivals drawn for the window
	Achieved float64 `json:"achieved_rps"`          // answers received, or iterations ended, within it
	Requests int     `json:"requests"`              // due in the window
	Lost     int     `json:"lost"`                  // of them, never answered
	Wrong    int     `json:"wrong"`                 // answered with something else, at any time
	// Ops is the work done, in iterations, where latency says nothing of it.
	Ops uint64 `json:"ops,omitempty"`
	// Values are further figures, by names that say their units.
	Values map[string]float64 `json:"values,omitempty"`
	// RunDelay is how long the client was runnable and not running in the window.
	RunDelay time.Duration `json:"run_delay_ns,omitempty"`
	// Slowest are the window's slowest answers, slowest first: where to look
	// when the tail has an outlier.
	Slowest []Slow `json:"slowest,omitempty"`
}

// Slow is one slow answer.
type Slow struct {
	Due     time.Duration `json:"due_ns"` // since the window's start
	Latency time.Duration `json:"latency_ns"`
	Lag     time.Duration `json:"lag_ns"` // of it, added by the client
	Conn    int           `json:"conn"`
}

// Pod is one pod's share of the window.
type Pod struct {
	Name    string        `json:"name"`
	Tier    string        `json:"tier"`
	Weight  int           `json:"weight"`
	Threads int           `json:"threads"`
	CPUTime time.Duration `json:"cpu_time_ns"`
}

// Probe is what the class-neutral probe counted in the window.
type Probe struct {
	// Tiers is by tier name: critical, system, standard, background.
	Tiers map[string]TierProbe `json:"tiers"`
	// Counters are the kernel's and the engine's, before and after, by name.
	Counters map[string]Count `json:"counters,omitempty"`
}

// TierProbe is one tier's part of it.
type TierProbe struct {
	Delay     *Hist         `json:"delay"` // woken until it runs
	Inversion time.Duration `json:"inversion_ns"`
	// InversionMax and WorstWait are the longest of the window and the end of
	// the pad before it.
	InversionMax time.Duration `json:"inversion_max_ns"`
	WorstWait    time.Duration `json:"worst_wait_ns"`
	CPUTime      time.Duration `json:"cpu_time_ns"`
}

// Count is a counter before and after the window.
type Count struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// Ledger is where the node's CPU time went between two readings. Idle comes
// from the CPUs' own books and everything else from the threads', so that the
// sum is a check of both.
type Ledger struct {
	Length   time.Duration `json:"length_ns"` // by CLOCK_MONOTONIC
	CPUs     int           `json:"cpus"`      // of the node
	PodCPUs  int           `json:"pod_cpus"`  // that pods may use
	Critical time.Duration `json:"critical_ns"`
	// Standard is that of pods between the two, where a scenario has any.
	Standard   time.Duration `json:"standard_ns,omitempty"`
	Background time.Duration `json:"background_ns"`
	Instrument time.Duration `json:"instrument_ns"` // the client and the reader of these counters
	System     time.Duration `json:"system_ns"`     // all else outside pods: agents, kernel threads
	Idle       time.Duration `json:"idle_ns"`       // no thread ran; interrupts taken meanwhile included
}

// BackgroundCPUs is how many CPUs' worth of time background work got.
func (l Ledger) BackgroundCPUs() float64 { return ratio(l.Background, l.Length) }

// CriticalCPUs is the same for the critical pod.
func (l Ledger) CriticalCPUs() float64 { return ratio(l.Critical, l.Length) }

// Left is the time that all but background left on the pods' CPUs.
func (l Ledger) Left() time.Duration {
	left := l.Length*time.Duration(l.PodCPUs) - l.Critical - l.Standard - l.System
	if l.PodCPUs == l.CPUs {
		left -= l.Instrument
	}
	return left
}

// Harvest is background's share of the time that all other work left on the
// pods' CPUs, in [0,1]. Where the instrument has no CPU of its own, it is work.
func (l Ledger) Harvest() float64 { return ratio(l.Background, l.Left()) }

// Error is how far the parts are from the whole, as a share of it.
func (l Ledger) Error() float64 {
	parts := l.Critical + l.Standard + l.Background + l.Instrument + l.System + l.Idle
	return ratio(parts, l.Length*time.Duration(l.CPUs)) - 1
}

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// SchedSample is the identity of the scheduler at one moment.
type SchedSample struct {
	At        time.Duration `json:"at_ns"` // since the window's start
	State     string        `json:"state"` // "" on a kernel without sched_ext
	Ops       string        `json:"ops"`
	EnableSeq uint64        `json:"enable_seq"`
	// All says whether it has all threads, not only those that ask for it; nil within a
	// window, where each look costs, and in older records.
	All *bool `json:"all,omitempty"`
}
