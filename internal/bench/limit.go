// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"time"
)

// A CPU limit is a quota of CPU time in each period, as cpu.max has it, and
// what may be saved up of it, as cpu.max.burst has it.

// Quota is one cgroup's limit.
type Quota struct {
	Quota  time.Duration `json:"quota_ns"` // 0: none
	Period time.Duration `json:"period_ns"`
	Burst  time.Duration `json:"burst_ns,omitempty"`
}

// CPUs is how many CPUs' worth of time the limit allows; 0 if there is none.
func (q Quota) CPUs() float64 { return ratio(q.Quota, q.Period) }

// What kubelet sets: a period of 100 ms unless it is configured otherwise, and
// no quota below 1 ms, which is the kernel's least.
const (
	KubeletPeriod = 100 * time.Millisecond
	leastQuota    = time.Millisecond
)

// Quota is what a limit in millicores becomes under the arm; 0 is no limit.
func (a Arm) Quota(milliCPU int) Quota {
	if a.NoLimit || milliCPU == 0 {
		return Quota{Period: KubeletPeriod} // as the kernel makes a cgroup
	}
	q := Quota{Period: cmp.Or(a.QuotaPeriod, KubeletPeriod)}
	q.Quota = max(q.Period*time.Duration(milliCPU)/1000, leastQuota)
	if a.QuotaBurst {
		q.Burst = q.Quota
	}
	return q
}

// Container is one of several containers in the critical pod.
type Container struct {
	Name          string `json:"name" yaml:"name"`
	LimitMilliCPU int    `json:"limit_millicpu" yaml:"limit_millicpu"`
	Threads       int    `json:"threads" yaml:"threads"`
}

// LimitStep is a change of the pod's limit while it works.
type LimitStep struct {
	At            time.Duration `json:"at_ns" yaml:"at"` // since the window's start
	LimitMilliCPU int           `json:"limit_millicpu" yaml:"limit_millicpu"`
}

// The names of the limited cgroups: the pod's, and its container's where there
// is one only. Several containers have the names that the scenario gives them.
const (
	PodLimit       = "pod"
	ContainerLimit = "ctr"
)

// Limited is a cgroup that has a limit.
type Limited struct {
	Name          string
	LimitMilliCPU int
}

// Limited lists the primary's limited cgroups, the pod's first. Kubelet limits
// a pod and each of its containers.
func (p Primary) Limited() []Limited {
	if p.LimitMilliCPU == 0 {
		return nil
	}
	out := []Limited{{PodLimit, p.LimitMilliCPU}}
	if len(p.Containers) == 0 {
		return append(out, Limited{ContainerLimit, p.LimitMilliCPU})
	}
	for _, c := range p.Containers {
		out = append(out, Limited{c.Name, c.LimitMilliCPU})
	}
	return out
}

// lastLimit is the limit at the window's end of one that was milliCPU before.
func (p Primary) lastLimit(milliCPU int) int {
	if n := len(p.LimitSteps); n > 0 {
		return p.LimitSteps[n-1].LimitMilliCPU
	}
	return milliCPU
}

// Limit is a limited cgroup's part of a window.
type Limit struct {
	Name string `json:"name"`
	// Before and After are what was in force before and after the window, as
	// the kernel's files say; Changes are those within it.
	Before  Quota         `json:"before"`
	After   Quota         `json:"after"`
	Changes []LimitChange `json:"changes,omitempty"`
	// Counters are those of cpu.stat, by its names. Under sched_ext the kernel
	// counts usage_usec only.
	Counters map[string]Count `json:"counters"`
	// Uses are CPU time over quota in every span of a length that no change of
	// the limit and no LimitSettles after one lies in.
	Uses []Use `json:"uses,omitempty"`
	// By is what Uses are measured by: UseByStamps or UseBySamples.
	By string `json:"uses_by,omitempty"`
	// Stopped is the longest time with work to do and no thread running; nil
	// where the work cannot say.
	Stopped *time.Duration `json:"stopped_ns,omitempty"`
}

// LimitChange is when a limit was changed, since the window's start.
type LimitChange struct {
	From  time.Duration `json:"from_ns"` // the first file was being written
	To    time.Duration `json:"to_ns"`   // all were
	Quota Quota         `json:"quota"`
}

// Use is the least and the most that was used of the quota in any span of one
// length. Where a limit does not bind, the least says nothing.
type Use struct {
	Span  time.Duration `json:"span_ns"`
	Spans int           `json:"spans"`
	Min   float64       `json:"min_ratio"`
	Max   float64       `json:"max_ratio"`
}

// The spans over which use is held against the quota.
const (
	ShortSpan = 100 * time.Millisecond
	LongSpan  = time.Second
)

// How use is measured.
const (
	// UseByStamps is by the work's own threads, which note the time after every
	// unit of work, of a known length: sliding by 1 ms, exact to one unit for each
	// thread that stops or starts at a span's end.
	UseByStamps = "stamps"
	// UseBySamples is by usage_usec, read every 100 ms. The kernel books a
	// running thread's time at its ticks: off by up to a tick for each CPU.
	UseBySamples = "samples"
)

// LimitSettles is how long a changed limit may take to be in force.
const LimitSettles = 10 * time.Millisecond

// Use returns what was used over spans of one length.
func (l Limit) Use(span time.Duration) (Use, bool) {
	for _, u := range l.Uses {
		if u.Span == span && u.Spans > 0 {
			return u, true
		}
	}
	return Use{}, false
}

// LimitOf returns the window's limit of that name.
func (w *Window) LimitOf(name string) (Limit, bool) {
	for _, l := range w.Limits {
		if l.Name == name {
			return l, true
		}
	}
	return Limit{}, false
}
