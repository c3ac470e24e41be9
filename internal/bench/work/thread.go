// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// A measured thread is a thread of the kernel and nothing else: locked to its
// goroutine, in raw system calls only, in functions that never look at their
// stack. So the Go runtime cannot take its P, run something else on it or move
// its stack: that would be hundreds of wakeups a second that are no part of the
// load. What remains of the runtime is its monitor, which wakes a hundred times
// a second for a microsecond. It is made a real-time thread: those are nobody's
// wakeups, for no scheduler under test and in no tier of the probe.
//
// What a thread reads was written before it passed the gate, and what it writes
// is read after it ended. The race detector knows nothing of gates: norace.

// sample is one duration and the moment it belongs to, ns.
type sample struct{ due, took int64 }

// thread is a measured thread and all the memory it will touch.
type thread struct {
	id        int
	tid       int
	plan      *plan
	ts        unix.Timespec
	usage     unix.Rusage
	cpus      unix.CPUSet // it may run on; none for all
	word      [8]byte
	due       []int64 // its arrivals
	late      samples // wakeups
	done      samples // completions
	stamps    stamps  // of requests
	ops       int64   // in the window
	seen      int64   // the same, as its partner counts
	first     int64   // the moments between which ops were done
	last      int64
	idle      uint64 // what burning computes, kept so that it is computed
	busyFrom  int64  // its CPU time at the window's ends
	busyTo    int64
	nSwitches int64 // times it left its CPU, within so many rounds
	nRounds   int64
	missed    int64 // arrivals that were over before it could wait for them
	unserved  int64 // arrivals that it had not begun when the time was over
	failed    unix.Errno
}

// samples are durations in memory that is there before it is needed.
type samples struct {
	all []sample
	n   int
}

func newSamples(size int) samples {
	s := samples{all: make([]sample, size)}
	for i := range s.all {
		s.all[i].due = -1 // every page is touched before it counts
	}
	return s
}

//go:norace
//go:nosplit
func (s *samples) add(due, took int64) {
	if s.n < len(s.all) {
		s.all[s.n] = sample{due, took}
		s.n++
	}
}

// plan is when everything happens, ns on CLOCK_MONOTONIC, set before a thread
// begins.
type plan struct {
	begin, from, to int64
	end             int64 // of the tail: what is late gives up
	loops           int64 // of burn, in one piece of work
	unit            int64 // that piece's length, ns
	gate            int   // an eventfd that lets one thread begin with each read
}

// launch starts the threads and returns once all wait for their beginning.
func launch(threads []*thread, run func(*thread)) (wait func(), err error) {
	gate, err := unix.Eventfd(0, unix.EFD_SEMAPHORE|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	// Each thread keeps its P for ever; the others are for this one.
	runtime.GOMAXPROCS(len(threads) + 2)
	var ready atomic.Int64
	var group sync.WaitGroup
	threads[0].plan.gate = gate // they share their plan
	for _, t := range threads {
		group.Go(func() {
			runtime.LockOSThread()
			t.prepare()
			t.tid = unix.Gettid()
			ready.Add(1)
			t.run(run)
		})
	}
	for ready.Load() < int64(len(threads)) {
		time.Sleep(time.Millisecond)
	}
	return group.Wait, setRuntimeApart(threads)
}

// setRuntimeApart gives every thread that is not measured real-time priority.
// Without the right to do so they stay what they are.
func setRuntimeApart(measured []*thread) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil || slices.ContainsFunc(measured, func(t *thread) bool { return t.tid == tid }) {
			continue
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set priority of thread %d: %w", tid, err)
		}
	}
	return nil
}

// prepare makes the calling thread t's. Its timers have no slack: 50 µs of it
// is the kernel's default, and would be measured as the scheduler's.
func (t *thread) prepare() {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		t.failed = errno(err)
	}
	if t.cpus.Count() > 0 {
		if err := unix.SchedSetaffinity(0, &t.cpus); err != nil {
			t.failed = errno(err)
		}
	}
}

func errno(err error) unix.Errno {
	if e, ok := err.(unix.Errno); ok { //nolint:errorlint // what x/sys/unix returns is bare
		return e
	}
	return unix.EINVAL
}

// run waits for the gate and then runs the thread's part.
func (t *thread) run(part func(*thread)) {
	if t.read(t.plan.gate) {
		part(t)
	}
}

// open lets n threads begin.
func (p *plan) open(n int) error {
	var count [8]byte
	count[0], count[1] = byte(n), byte(n>>8)
	if _, err := unix.Write(p.gate, count[:]); err != nil {
		return fmt.Errorf("start threads: %w", err)
	}
	return nil
}

// now is CLOCK_MONOTONIC, by a system call: the vDSO would need the runtime.
//
//go:norace
//go:nosplit
func (t *thread) now() int64 { return t.clock(unix.CLOCK_MONOTONIC) }

// cpuTime is the time the thread has run.
//
//go:norace
//go:nosplit
func (t *thread) cpuTime() int64 { return t.clock(unix.CLOCK_THREAD_CPUTIME_ID) }

//go:norace
//go:nosplit
func (t *thread) clock(id uintptr) int64 {
	_, _, e := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t.ts)), 0)
	if e != 0 {
		t.failed = e
	}
	return t.ts.Sec*1e9 + t.ts.Nsec
}

// sleepUntil returns whether the thread slept: not if at is over already.
//
//go:norace
//go:nosplit
func (t *thread) sleepUntil(at int64) bool {
	if t.now() >= at {
		return false
	}
	for {
		t.ts.Sec, t.ts.Nsec = at/1e9, at%1e9
		_, _, e := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&t.ts)), 0, 0, 0)
		if e != unix.EINTR {
			if e != 0 {
				t.failed = e
			}
			return true
		}
	}
}

// read reads eight bytes, as an eventfd has them; write writes them.
//
//go:norace
//go:nosplit
func (t *thread) read(fd int) bool { return t.transfer(unix.SYS_READ, fd, 8) == 8 }

//go:norace
//go:nosplit
func (t *thread) write(fd int, value uint64) bool {
	*(*uint64)(unsafe.Pointer(&t.word)) = value
	return t.transfer(unix.SYS_WRITE, fd, 8) == 8
}

// value is what the last read brought.
//
//go:norace
//go:nosplit
func (t *thread) value() uint64 { return *(*uint64)(unsafe.Pointer(&t.word)) }

//go:norace
//go:nosplit
func (t *thread) transfer(call uintptr, fd, size int) uintptr {
	for {
		n, _, e := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&t.word)), uintptr(size))
		if e == 0 {
			return n
		}
		if e != unix.EINTR {
			t.failed = e
			return 0
		}
	}
}

// cpu is the CPU the thread runs on.
//
//go:norace
//go:nosplit
func (t *thread) cpu() uint32 {
	n := (*uint32)(unsafe.Pointer(&t.word))
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(n)), 0, 0); e != 0 {
		t.failed = e
	}
	return *n
}

// switches is how often the thread has left its CPU, by itself or not.
//
//go:norace
//go:nosplit
func (t *thread) switches() int64 {
	_, _, e := unix.RawSyscall(unix.SYS_GETRUSAGE, uintptr(unix.RUSAGE_THREAD), uintptr(unsafe.Pointer(&t.usage)), 0)
	if e != 0 {
		t.failed = e
	}
	return t.usage.Nvcsw + t.usage.Nivcsw
}

// burn computes for loops rounds of burnRound instructions, and then some for
// the loop: calibrate knows.
//
//go:norace
//go:nosplit
//go:noinline
func burn(x uint64, loops int64) uint64 {
	for range loops {
		x = x*5 + 1
		x = x*5 + 3
		x = x*5 + 5
		x = x*5 + 7
		x = x*5 + 9
		x = x*5 + 11
		x = x*5 + 13
		x = x*5 + 15
	}
	return x
}

// window tells whether something due at that moment counts.
//
//go:norace
//go:nosplit
func (t *thread) inWindow(at int64) bool { return at >= t.plan.from && at < t.plan.to }

// calibrate returns how many rounds of burn take as long as work. An attempt is
// much shorter than the 20 µs for which Go's monitor thread, at a process' start,
// sleeps between two looks at it: were it longer, each would be interrupted.
func calibrate(work time.Duration) int64 {
	const rounds, attempts = 512, 128
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t := &thread{}
	takes := func(loops int64) int64 {
		return shortest(attempts, func() int64 {
			begin := t.now()
			t.idle = burn(t.idle, loops)
			return t.now() - begin
		})
	}
	// The difference of two lengths is free of what reading the clock takes.
	took := max(takes(2*rounds)-takes(rounds), 1)
	return max(int64(work)*rounds/took, 1)
}

// shortest of many attempts is one that nobody interrupted: in virtual time it is
// the same to the instruction, whoever else runs.
func shortest(attempts int, measure func() int64) int64 {
	best := measure()
	for range attempts - 1 {
		best = min(best, measure())
	}
	return best
}

// hist makes a histogram of the samples that were due in the window.
func hist(threads []*thread, of func(*thread) *samples) *bench.Hist {
	h := bench.NewHist()
	for _, t := range threads {
		s := of(t)
		for _, v := range s.all[:s.n] {
			if t.inWindow(v.due) {
				h.Record(time.Duration(v.took))
			}
		}
	}
	return h
}

// slowest are the window's longest samples, longest first.
func slowest(threads []*thread, of func(*thread) *samples) []bench.Slow {
	const most = 8
	var out []bench.Slow
	for _, t := range threads {
		s := of(t)
		for _, v := range s.all[:s.n] {
			if t.inWindow(v.due) {
				out = append(out, bench.Slow{Due: time.Duration(v.due - t.plan.from), Latency: time.Duration(v.took), Conn: t.id})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b bench.Slow) int { return int(b.Latency - a.Latency) })
	return slices.Clone(out[:min(len(out), most)])
}
