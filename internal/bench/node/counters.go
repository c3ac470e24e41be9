// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// reading is the node's CPU counters at one moment, as totals since boot.
type reading struct {
	at         time.Duration
	critical   time.Duration
	background time.Duration
	instrument time.Duration
	slice      time.Duration // all of system.slice, the instrument included
	kernel     time.Duration // threads outside any slice: the kernel's
	idle       time.Duration
}

// counters reads the node's CPU time, by who used it.
type counters struct {
	tree    *tree
	kernel  []string // schedstat files of the root cgroup's processes
	cpus    int
	podCPUs int
}

func (c *counters) read() (reading, error) {
	r := reading{at: monotonic()}
	for _, part := range []struct {
		path string
		into *time.Duration
	}{{critical, &r.critical}, {bestEffort, &r.background}, {instrument, &r.instrument}, {system, &r.slice}} {
		usage, err := c.tree.usage(part.path)
		if err != nil {
			return r, err
		}
		*part.into = usage
	}
	for _, path := range c.kernel {
		// A kernel thread that has ended takes its last time with it.
		if text, err := os.ReadFile(path); err == nil {
			r.kernel += parseRunTime(string(text))
		}
	}
	var err error
	r.idle, err = idleTime()
	return r, err
}

// ledger is what happened between two readings.
func (c *counters) ledger(a, b reading) bench.Ledger {
	inst := b.instrument - a.instrument
	l := bench.Ledger{
		Length: b.at - a.at, CPUs: c.cpus, PodCPUs: c.podCPUs,
		Critical: b.critical - a.critical, Background: b.background - a.background, Instrument: inst,
		System: b.slice - a.slice - inst + b.kernel - a.kernel, Idle: b.idle - a.idle,
	}
	return l
}

// findKernelThreads lists the schedstat files of every process in the root
// cgroup. Its members are kernel threads and the guest's init.
func (c *counters) findKernelThreads() error {
	text, err := os.ReadFile(c.tree.root + "/cgroup.procs")
	if err != nil {
		return fmt.Errorf("list kernel threads: %w", err)
	}
	c.kernel = nil
	for pid := range strings.FieldsSeq(string(text)) {
		c.kernel = append(c.kernel, "/proc/"+pid+"/schedstat")
	}
	return nil
}

// parseRunTime returns the time on CPU, the first field of a schedstat file.
func parseRunTime(text string) time.Duration {
	first, _, _ := strings.Cut(text, " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}

// idleTime is the idle time of all CPUs since boot. The kernel counts it in
// nanoseconds and shows hundredths of a second of the sum.
func idleTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, fmt.Errorf("read idle time: %w", err)
	}
	_, idle, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	sec, err := strconv.ParseFloat(idle, 64)
	if err != nil {
		return 0, fmt.Errorf("read idle time: %w", err)
	}
	return time.Duration(sec * float64(time.Second)), nil
}

// monotonic is CLOCK_MONOTONIC, the clock the client announces its window on.
func monotonic() time.Duration {
	var ts unix.Timespec
	// It cannot fail with a valid pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// schedDir is where the kernel says which sched_ext scheduler is live.
const schedDir = "/sys/kernel/sched_ext"

// sampleSched reads the scheduler's identity. A kernel without sched_ext has
// none, and no scheduler but its own.
func sampleSched(start time.Duration) bench.SchedSample {
	s := bench.SchedSample{
		At:    monotonic() - start,
		State: readWord(schedDir + "/state"),
		Ops:   readWord(schedDir + "/root/ops"),
	}
	s.EnableSeq, _ = strconv.ParseUint(readWord(schedDir+"/enable_seq"), 10, 64)
	return s
}

func readWord(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
