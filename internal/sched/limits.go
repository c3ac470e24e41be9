// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
)

// LimitStats is a CPU limit that the scheduler holds, and what it did to its
// cgroup since the limit came.
type LimitStats struct {
	ID     uint64        `json:"id"`               // of the cgroup
	Cgroup string        `json:"cgroup,omitempty"` // filled in by the caller: the kernel side knows ids only
	Quota  time.Duration `json:"quota_ns"`         // CPU time for each period; 0: lifted
	Period time.Duration `json:"period_ns"`
	Burst  time.Duration `json:"burst_ns"`

	Used time.Duration `json:"used_ns"` // CPU time charged to the limit
	// KernelUsage is usage_usec of cpu.stat, filled in by the caller. It counts
	// since the cgroup was made, Used since the limit came.
	KernelUsage  time.Duration `json:"kernel_usage_ns,omitempty"`
	Debt         time.Duration `json:"debt_ns"` // of Used, run without tokens: in the kernel, or past a grant's end
	Waiting      int           `json:"waiting"` // threads that wait for tokens now
	Waits        uint64        `json:"waits"`
	Waited       time.Duration `json:"waited_ns"` // by all threads together
	LongestWait  time.Duration `json:"longest_wait_ns"`
	PacedPeriods uint64        `json:"paced_periods"`   // periods in which a thread waited
	Paced        time.Duration `json:"paced_ns"`        // time in which a thread waited
	LongestStop  time.Duration `json:"longest_stop_ns"` // while a thread waited and none ran
}

// CPUs is the limit in CPUs; 0: lifted.
func (l LimitStats) CPUs() float64 {
	if l.Period == 0 {
		return 0
	}
	return float64(l.Quota) / float64(l.Period)
}

// LimitSupport is what limits Temper can hold here.
func LimitSupport() (policy.LimitSupport, error) {
	kernel, err := kernelTypes()
	if err != nil {
		return policy.LimitSupport{}, &Error{Reason: NoBTF, Fix: fixBTF, Err: err}
	}
	return policy.LimitSupport{
		Told:  kernel.tellsLimits,
		Most:  int(schedTemperLimitsTEMPER_MAX_GATES) - 1, // slot 0 is nobody's
		Depth: int(schedTemperLimitsTEMPER_GATE_DEPTH),
	}, nil
}

// Limits returns the CPU limits that the scheduler holds, in no order.
func (s *Scheduler) Limits() ([]LimitStats, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	m := s.maps[schedMapGates]
	var limits []LimitStats
	for slot := range m.MaxEntries() {
		var g schedGate
		// One by one, under its lock: the kernel copies no lock in a batch.
		if err := m.LookupWithFlags(slot, &g, ebpf.LookupLock); err != nil {
			return nil, fmt.Errorf("read limit %d: %w", slot, err)
		}
		if g.Cgroup != 0 {
			limits = append(limits, limitOf(&g))
		}
	}
	return limits, nil
}

func limitOf(g *schedGate) LimitStats {
	c := &g.Counters
	l := LimitStats{
		ID:           g.Cgroup,
		Quota:        time.Duration(g.Limit.QuotaUs) * time.Microsecond,
		Period:       time.Duration(g.Limit.PeriodUs) * time.Microsecond,
		Burst:        time.Duration(g.Limit.BurstUs) * time.Microsecond,
		Used:         time.Duration(c.UsedNs),
		Debt:         time.Duration(c.DebtNs),
		Waiting:      int(g.Waiting),
		Waits:        c.Waits,
		Waited:       time.Duration(c.WaitedNs),
		LongestWait:  time.Duration(c.LongestWaitNs),
		PacedPeriods: c.PacedPeriods,
		Paced:        time.Duration(c.PacedNs),
		LongestStop:  time.Duration(c.LongestStopNs),
	}
	// A pod that always wants more waits in one piece, which is counted when it
	// is over. The bucket's clock is as recent as the last grant, and the same.
	l.Paced += since(g.PacedSince, g.Bucket.FilledAt)
	l.LongestStop = max(l.LongestStop, since(g.StopSince, g.Bucket.FilledAt))
	return l
}

// since is the time from a moment, 0 for none, to another that may lie before it.
func since(began, now uint64) time.Duration {
	if began == 0 || now < began {
		return 0
	}
	return time.Duration(now - began)
}

// LimitsNotHeld returns how many times since the attach a limit came and found
// no slot. Such a limit does nothing.
func (s *Scheduler) LimitsNotHeld() (uint64, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	offset, err := unheldOffset()
	if err != nil {
		return 0, err
	}
	m := s.maps[pinGlobals]
	globals := make([]byte, m.ValueSize())
	if offset+8 > len(globals) {
		return 0, fmt.Errorf("read limits that are not held: %w", ErrOtherBuild)
	}
	if err := m.Lookup(uint32(0), &globals); err != nil {
		return 0, fmt.Errorf("read limits that are not held: %w", err)
	}
	return binary.LittleEndian.Uint64(globals[offset:]), nil
}

// unheldOffset is where limits_unheld of bpf/gate.bpf.h is among the globals.
// The object is read once: its variables do not move.
var unheldOffset = sync.OnceValues(func() (int, error) {
	spec, err := loadSched()
	if err != nil {
		return 0, fmt.Errorf("read object: %w", err)
	}
	section, ok := spec.Maps[sectionGlobals].Value.(*btf.Datasec)
	if !ok {
		return 0, errors.New("find limits_unheld: the object describes no globals")
	}
	for _, v := range section.Vars {
		if v.Type.TypeName() == "limits_unheld" {
			return int(v.Offset), nil
		}
	}
	return 0, errors.New("find limits_unheld: the object has no such global")
})

// progSetLimit is the program that tells the kernel side of a limit where the
// kernel does not.
const progSetLimit = "temper_set_limit"

// limitArgs is what progSetLimit takes. A quota of 0 lifts the limit.
type limitArgs struct {
	Cgroup, QuotaUs, PeriodUs, BurstUs uint64
}

// SetLimit tells the kernel side of a cgroup's limit, on kernels that do not. The
// error wraps unix.ENOENT if the cgroup is gone or has no cpu controller.
func (s *Scheduler) SetLimit(l policy.Limit) error {
	if err := s.check(); err != nil {
		return err
	}
	prog := s.programs[progSetLimit]
	if prog == nil {
		return fmt.Errorf("set limit of cgroup %d: this build has no %s", l.ID, progSetLimit)
	}
	ret, err := prog.Run(&ebpf.RunOptions{Context: limitArgs{l.ID, l.QuotaUs, l.PeriodUs, l.BurstUs}})
	if err != nil {
		return fmt.Errorf("set limit of cgroup %d: %w", l.ID, err)
	}
	if ret != 0 {
		return fmt.Errorf("set limit of cgroup %d: %w", l.ID, unix.Errno(-int32(ret)))
	}
	return nil
}
