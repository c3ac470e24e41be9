// SPDX-License-Identifier: Apache-2.0

// Package sched loads the BPF side and speaks to it. It is the only importer
// of cilium/ebpf.
//
// The kernel holds the truth: the scheduler's link and maps are pinned, so a
// process may die at any time and the next one adopts what is there.
package sched

import (
	"time"

	"github.com/temper-sched/temper/internal/tier"
)

// DefaultPinDir is where links and maps are pinned.
const DefaultPinDir = "/sys/fs/bpf/temper"

// Name is what the kernel shows in /sys/kernel/sched_ext/root/ops.
const Name = "temper"

// Reason is one of a closed list of causes, the same words in doctor, status,
// events and metrics.
type Reason string

// The reasons for which the engine is not, or no longer, attached.
const (
	NoSchedExt        Reason = "NoSchedExt"        // the kernel was built without sched_ext, or is older than 6.12
	KernelTooOld      Reason = "KernelTooOld"      // sched_ext is there, but before 6.16
	NoBTF             Reason = "NoBTF"             // /sys/kernel/btf/vmlinux is missing
	KfuncBTFMalformed Reason = "KfuncBTFMalformed" // built with a pahole that dropped kfuncs
	KernelDenylisted  Reason = "KernelDenylisted"  // a known deadlock: 7.1.x
	ForeignScheduler  Reason = "ForeignScheduler"  // another sched_ext scheduler is loaded
	CgroupV1          Reason = "CgroupV1"          // no unified hierarchy, or no cpu controller on it
	NoBPFFS           Reason = "NoBPFFS"           // nowhere to pin
	MissingCapability Reason = "MissingCapability" // CAP_BPF or CAP_PERFMON
	VerifierRejected  Reason = "VerifierRejected"  // the kernel refused the object
	Denied            Reason = "Denied"            // a security profile, or a right that is missing, forbids a call
	AttachFailed      Reason = "AttachFailed"      // another cause, which the message has
	LimitsNotHeld     Reason = "LimitsNotHeld"     // cpuMax is refuse, and a CPU limit could not be held
	EjectedStall      Reason = "EjectedStall"      // the watchdog saw a thread that was not served
	EjectedError      Reason = "EjectedError"      // the kernel or the object reported an error
	EjectedSysRq      Reason = "EjectedSysRq"      // SysRq-S
	AgentStale        Reason = "AgentStale"        // the dead-man: no heartbeat
	Stopped           Reason = "Stopped"           // detached on request
)

// Check is one preflight fact.
type Check struct {
	Name   string `json:"name"`             // "sched_ext in the kernel"
	OK     bool   `json:"ok"`               //
	Reason Reason `json:"reason,omitempty"` // set when not OK
	Detail string `json:"detail"`           // what was seen
	Fix    string `json:"fix,omitempty"`    // the way out, when not OK
}

// State is what runs now and why.
type State struct {
	// Attached is true while Temper schedules this node.
	Attached bool `json:"attached"`
	// Kernel is /sys/kernel/sched_ext/state: "enabled", "disabled", …; empty
	// on a kernel without sched_ext.
	Kernel string `json:"kernel_state"`
	// Ops is the name of the loaded sched_ext scheduler, ours or another.
	Ops string `json:"ops"`
	// EnableSeq counts the attaches since boot, of any scheduler.
	EnableSeq uint64 `json:"enable_seq"`
	// Generation counts the plans applied since the attach.
	Generation uint64 `json:"generation"`
	// HeartbeatAge is the time since an agent last reported; the dead-man
	// detaches when it passes DeadMan.
	HeartbeatAge time.Duration `json:"heartbeat_age_ns"`
	DeadMan      time.Duration `json:"dead_man_ns"`
	// Exit is the last exit the object recorded, nil if none.
	Exit *Exit `json:"exit,omitempty"`
}

// Exit is how an attached scheduler ended.
type Exit struct {
	Reason  Reason `json:"reason"`
	Kind    uint64 `json:"kind"` // the kernel's enum scx_exit_kind
	Code    int64  `json:"code"`
	Message string `json:"message"` // the kernel's reason and message
	// At is of CLOCK_MONOTONIC: it tells one exit from another.
	At time.Duration `json:"at_ns"`
}

// Bucket is what a CPU's time went to. The buckets of a CPU add up to wall time.
type Bucket int

// The ledger's buckets.
const (
	BucketOwn      Bucket = iota // critical threads on their own fence
	BucketCritical               // critical threads elsewhere
	BucketSystem                 // system tier, kernel threads included
	BucketStandard
	BucketBackground
	BucketLent  // lower tiers on a fence: time the fence lent
	BucketOther // deadline, real-time and stop classes
	BucketIRQ   // softirq and device interrupts
	BucketIdle
	BucketCount
)

// CPUTime is one CPU's ledger since the probe was loaded.
type CPUTime struct {
	CPU     int                        `json:"cpu"`
	Buckets [BucketCount]time.Duration `json:"buckets_ns"`
}

// Histogram counts durations in log-linear buckets: 8 per power of two.
type Histogram struct {
	Counts []uint64      `json:"counts"` // BucketBounds gives the limits
	Max    time.Duration `json:"max_ns"`
	Sum    time.Duration `json:"sum_ns"`
}

// TierStats is what one tier got and how long it waited.
type TierStats struct {
	Tier         tier.Tier     `json:"tier"`
	CPU          time.Duration `json:"cpu_ns"`
	WakeupDelay  Histogram     `json:"wakeup_delay"`  // woken until it runs
	WorstWait    time.Duration `json:"worst_wait_ns"` // runnable until it runs, woken or preempted
	Preemptions  uint64        `json:"preemptions"`   // CPUs it took from a lower tier, or a peer
	Preempted    uint64        `json:"preempted"`     // CPUs it lost to a higher one, or to a peer
	Inversion    time.Duration `json:"inversion_ns"`
	InversionMax time.Duration `json:"inversion_max_ns"`
	Rescued      uint64        `json:"rescued"` // served out of turn to keep the starvation bound
}

// GroupStats is the same for one group of the plan.
type GroupStats struct {
	ID          uint64        `json:"id"`
	Cgroup      string        `json:"cgroup,omitempty"` // filled in by the caller: the kernel side knows ids only
	Tier        tier.Tier     `json:"tier"`
	CPU         time.Duration `json:"cpu_ns"`
	WakeupDelay Histogram     `json:"wakeup_delay"`
	WorstWait   time.Duration `json:"worst_wait_ns"`
}

// Stats is everything counted, as totals since the load: differences between
// two readings are what happened between them.
type Stats struct {
	At        time.Duration         `json:"at_ns"` // CLOCK_MONOTONIC when it was read
	CPUs      []CPUTime             `json:"cpus"`
	Tiers     [tier.Count]TierStats `json:"tiers"`
	Groups    []GroupStats          `json:"groups"`
	WaitBound time.Duration         `json:"wait_bound_ns"`    // the starvation bound promised
	Events    map[string]int64      `json:"events,omitempty"` // the kernel's own counters, by its names
}
