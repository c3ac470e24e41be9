// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// reading is the node's CPU counters at one moment, as totals since boot.
type reading struct {
	at         time.Duration // CLOCK_MONOTONIC
	realtime   time.Duration // CLOCK_REALTIME at the same moment
	critical   time.Duration
	kubepods   time.Duration // all pods
	background time.Duration
	instrument time.Duration
	slice      time.Duration // all that is no pod, the instrument included
	kernel     time.Duration // threads outside any slice: the kernel's
	busy       time.Duration // all threads, by the CPUs' own books
	pods       []time.Duration
	limits     []limitReading
}

// counters reads the node's CPU time, by who used it.
type counters struct {
	tree   *tree
	kernel []int // open schedstat files of the root cgroup's processes
	layout layout
	// critical are the cgroups of the critical pods.
	critical   []string
	pods       []pod // whose time is read as well
	limited    []limited
	others     bool     // there are pods of the standard tier
	neighbours []string // cgroups that are not ours
}

// read takes a reading, in real time. Two books are kept apart: the kernel charges every
// thread and its cgroups, and every CPU counts the time that threads ran on it.
// (The kernel's own idle time is not used: 7.2 overstates it on CPUs that wake
// thousands of times a second.)
func (c *counters) read() (r reading, err error) {
	if err := closeBooks(c.layout); err != nil {
		return r, err
	}
	r = reading{at: monotonic(), realtime: clock(unix.CLOCK_REALTIME)}
	var inClient, inDriver time.Duration
	for _, part := range []struct {
		path string
		into *time.Duration
	}{{kubepods, &r.kubepods}, {bench.BestEffort, &r.background}, {client, &inClient}, {driver, &inDriver}, {system, &r.slice}} {
		usage, err := c.tree.usage(part.path)
		if err != nil {
			return r, err
		}
		*part.into = usage
	}
	r.instrument = inClient + inDriver
	for _, dir := range c.neighbours {
		usage, err := usageOf(dir)
		if err != nil {
			return r, err
		}
		r.slice += usage
	}
	if err := c.readPods(&r); err != nil {
		return r, err
	}
	text, err := os.ReadFile("/proc/schedstat")
	if err != nil {
		return r, fmt.Errorf("read time of all threads: %w", err)
	}
	if r.busy, err = parseBusy(string(text)); err != nil {
		return r, err
	}
	r.kernel = c.kernelTime()
	return r, nil
}

// readPods reads what the pods by themselves used, and what limits did to them.
func (c *counters) readPods(r *reading) (err error) {
	for _, path := range c.critical {
		usage, err := c.tree.usage(path)
		if err != nil {
			return err
		}
		r.critical += usage
	}
	for _, p := range c.pods {
		usage, err := c.tree.usage(p.path)
		if err != nil {
			return err
		}
		r.pods = append(r.pods, usage)
	}
	r.limits, err = c.readLimits()
	return err
}

// ledger is what happened between two readings.
func (c *counters) ledger(a, b reading) bench.Ledger {
	length, inst := b.at-a.at, b.instrument-a.instrument
	l := bench.Ledger{
		Length: length, CPUs: len(c.layout.all), PodCPUs: len(c.layout.pods),
		Critical: b.critical - a.critical, Background: b.background - a.background, Instrument: inst,
		System: b.slice - a.slice - inst + b.kernel - a.kernel,
		Idle:   length*time.Duration(len(c.layout.all)) - (b.busy - a.busy),
	}
	if pods := b.kubepods - a.kubepods; c.others {
		l.Standard = pods - l.Critical - l.Background
	}
	return l
}

// closeBooks makes every pod CPU switch threads once: a CPU books a thread's
// time only when the thread leaves it, and a spinner may not do so for seconds.
// It runs the calling thread, which must be a real-time one, on each CPU for a
// moment, on this program's own at last.
func closeBooks(l layout) error {
	for _, cpu := range l.pods {
		if err := pin(0, cpu); err != nil {
			return err
		}
	}
	return pin(0, l.last)
}

// inRealTime calls fn on a thread of real-time priority: neither EEVDF nor
// sched_ext has a say in when it runs, so that reading the counters costs every
// arm the same and comes when it is due.
func inRealTime(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := setScheduler(0, unix.SCHED_FIFO, 1); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return setScheduler(0, unix.SCHED_NORMAL, 0)
}

// sleepUntil sleeps on the calling thread itself, without Go's timers: those
// would wake another thread first.
func sleepUntil(ctx context.Context, at time.Duration) error {
	ts := unix.NsecToTimespec(int64(at))
	for monotonic() < at {
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("sleep: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// setScheduler sets a thread's policy, 0 for the calling one's. What it starts
// has the normal one.
func setScheduler(tid int, policy, priority uint32) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
	if policy != unix.SCHED_NORMAL {
		attr.Flags = unix.SCHED_FLAG_RESET_ON_FORK
	}
	if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
		return fmt.Errorf("set scheduling policy of thread %d: %w", tid, err)
	}
	return nil
}

// raise gives every thread of this process real-time priority until lower is
// called: beside critical work that saturates the node, even the start of the
// window would come late.
func raise() (lower func() error, err error) {
	if err := onOwnThreads(func(tid int) error { return setScheduler(tid, unix.SCHED_FIFO, 1) }); err != nil {
		return nil, err
	}
	return func() error {
		return onOwnThreads(func(tid int) error { return setScheduler(tid, unix.SCHED_NORMAL, 0) })
	}, nil
}

// onOwnThreads calls fn for every thread of this process.
func onOwnThreads(fn func(tid int) error) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		if err := fn(tid); err != nil {
			return err
		}
	}
	return nil
}

// pin binds a thread, 0 for the calling one, to cpu.
func pin(tid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("bind thread %d to CPU %d: %w", tid, cpu, err)
	}
	return nil
}

// onAllCPUs calls fn on a thread that is bound to no CPU while it does.
func onAllCPUs(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var bound, all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &bound); err != nil {
		return fmt.Errorf("read own affinity: %w", err)
	}
	all.Fill()
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		return fmt.Errorf("unbind thread: %w", err)
	}
	if err := fn(); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, &bound); err != nil {
		return fmt.Errorf("bind thread again: %w", err)
	}
	return nil
}

// pinProcess binds every thread of this process to cpu; later ones inherit it.
func pinProcess(cpu int) error {
	return onOwnThreads(func(tid int) error { return pin(tid, cpu) })
}

// parseBusy sums the time that threads ran on each CPU, the seventh figure of
// a CPU's line in /proc/schedstat, versions 15 to 17.
func parseBusy(text string) (busy time.Duration, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 10 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		ns, err := strconv.ParseInt(f[7], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse time of %s: %w", f[0], err)
		}
		busy += time.Duration(ns)
	}
	if busy == 0 {
		return 0, errors.New("parse /proc/schedstat: no CPU ran a thread")
	}
	return busy, nil
}

// findKernelThreads opens the schedstat files of every process in the root
// cgroup. Its members are kernel threads and the guest's init. Opening them for
// each reading would cost ten times as much as reading them.
func (c *counters) findKernelThreads() error {
	text, err := os.ReadFile(mount + "/cgroup.procs")
	if err != nil {
		return fmt.Errorf("list kernel threads: %w", err)
	}
	for _, fd := range c.kernel {
		_ = unix.Close(fd)
	}
	c.kernel = c.kernel[:0]
	for pid := range strings.FieldsSeq(string(text)) {
		fd, err := unix.Open("/proc/"+pid+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it has just ended
		}
		c.kernel = append(c.kernel, fd)
	}
	return nil
}

// kernelTime is what the kernel threads have run. One that has ended takes its
// last time with it.
func (c *counters) kernelTime() (total time.Duration) {
	var buf [64]byte
	for _, fd := range c.kernel {
		if n, err := unix.Pread(fd, buf[:], 0); err == nil {
			total += parseRunTime(string(buf[:n]))
		}
	}
	return total
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

// monotonic is CLOCK_MONOTONIC, the clock the client announces its window on.
func monotonic() time.Duration { return clock(unix.CLOCK_MONOTONIC) }

func clock(id int32) time.Duration {
	var ts unix.Timespec
	// It cannot fail with a valid pointer.
	_ = unix.ClockGettime(id, &ts)
	return time.Duration(ts.Nano())
}
