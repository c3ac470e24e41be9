// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// evenly draws gaps of half to one and a half times the mean: they wander over
// the tick, and no two of a thread's wakeups come close.
func evenly(r *rand.Rand) float64 { return .5 + r.Float64() }

// randomly draws the gaps of a Poisson process.
func randomly(r *rand.Rand) float64 { return r.ExpFloat64() }

// timer: each thread sleeps until its next moment and notes how late it runs.
func (w *work) timer() error {
	w.part = timerThread
	w.figures = func(r *bench.Result) {
		w.waited(r)
		w.served(r)
		w.waits(r)
	}
	return w.arrivals(evenly)
}

//go:norace
//go:nosplit
func timerThread(t *thread) {
	for i, at := range t.due {
		slept := t.sleepUntil(at)
		now := t.now()
		t.mark(now)
		if now > t.plan.end {
			t.giveUp(i, now)
			break
		}
		if slept {
			t.late.add(at, now-at)
		} else if t.inWindow(at) {
			t.missed++
		}
		t.done.add(at, now-at)
	}
	t.mark(t.plan.to)
}

// giveUp ends a thread that came so late that the window has long been over:
// what it has not begun has waited at least until now, and counts as that.
//
//go:norace
//go:nosplit
func (t *thread) giveUp(next int, now int64) {
	for ; next < len(t.due); next++ {
		if at := t.due[next]; t.inWindow(at) {
			t.late.add(at, now-at)
			t.done.add(at, now-at)
			t.unserved++
		}
	}
}

// mark notes the CPU time used when the window's ends are first seen.
//
//go:norace
//go:nosplit
func (t *thread) mark(now int64) {
	if t.busyFrom == 0 && now >= t.plan.from {
		t.busyFrom = t.cpuTime()
	}
	if t.busyTo == 0 && now >= t.plan.to {
		t.busyTo = t.cpuTime()
	}
}

// waits says how many arrivals had to wait for their own thread, and how many
// waited for ever.
func (w *work) waits(r *bench.Result) {
	var all, missed, unserved int64
	for _, t := range w.threads {
		missed, unserved = missed+t.missed, unserved+t.unserved
		for _, at := range t.due {
			if t.inWindow(at) {
				all++
			}
		}
	}
	r.Values[ValueMissed] = ratio(missed, all)
	r.Values[ValueUnserved] = float64(unserved)
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// busyAfterWake is how long a waker goes on computing: the thread it woke must
// run elsewhere to run at once.
const busyAfterWake = 100 * time.Microsecond

// eventfd: every second thread is woken by the one before it, which computes on.
func (w *work) eventfd() error {
	if w.spec.Threads%2 != 0 {
		return fmt.Errorf("prepare %s: %d threads are no pairs", w.spec.Kind, w.spec.Threads)
	}
	w.plan.loops = calibrate(busyAfterWake)
	w.spec.Rate *= 2 // only half of the threads have arrivals of their own
	if err := w.arrivals(evenly); err != nil {
		return err
	}
	pairs := make([]pair, w.spec.Threads/2)
	for i := range pairs {
		p := &pairs[i]
		p.waker, p.woken = w.threads[2*i], w.threads[2*i+1]
		p.stamps, p.cpus = make([]int64, len(p.waker.due)), make([]uint32, len(p.waker.due))
		for j := range p.stamps {
			p.stamps[j], p.cpus[j] = -1, 0
		}
		// The pair's notes are the woken one's.
		p.woken.late, p.woken.done = newSamples(len(p.stamps)), newSamples(len(p.stamps))
		w.offsets[2*i+1], p.woken.due = nil, nil
		var err error
		if p.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
			return fmt.Errorf("create eventfd: %w", err)
		}
	}
	w.part = func(t *thread) {
		if p := &pairs[t.id/2]; t.id%2 == 0 {
			p.wake()
		} else {
			p.wait()
		}
	}
	w.figures = func(r *bench.Result) {
		w.waited(r)
		var wakes, elsewhere int64
		for _, p := range pairs {
			wakes, elsewhere = wakes+p.wakes, elsewhere+p.elsewhere
			for _, at := range p.stamps {
				if p.waker.inWindow(at) {
					r.Lost++
				}
			}
		}
		r.Lost -= r.Requests
		r.Requests += r.Lost
		r.Offered = float64(r.Requests) / w.spec.Window.Seconds()
		r.Achieved = float64(r.Requests-r.Lost) / w.spec.Window.Seconds()
		r.Values[ValueElsewhere] = ratio(elsewhere, wakes)
	}
	return nil
}

// pair is a thread that wakes another one.
type pair struct {
	waker, woken *thread
	fd           int
	stamps       []int64  // when each wakeup was sent
	cpus         []uint32 // and from where
	wakes        int64
	elsewhere    int64
}

//go:norace
//go:nosplit
func (p *pair) wake() {
	t := p.waker
	for i, at := range t.due {
		t.sleepUntil(at)
		p.cpus[i] = t.cpu()
		p.stamps[i] = t.now()
		t.mark(p.stamps[i])
		t.write(p.fd, 1)
		t.idle = burn(t.idle, t.plan.loops)
	}
	t.sleepUntil(t.plan.to)
	t.mark(t.plan.to)
	t.write(p.fd, uint64(len(p.stamps))) // more than it can still expect: the end
}

//go:norace
//go:nosplit
func (p *pair) wait() {
	t, next := p.woken, 0
	for t.read(p.fd) {
		// A thread that comes late may find several wakeups.
		count, now := int(t.value()), t.now()
		cpu := t.cpu()
		t.mark(now)
		for ; count > 0 && next < len(p.stamps) && p.stamps[next] >= 0; count-- {
			at := p.stamps[next]
			t.late.add(at, now-at)
			if t.inWindow(at) {
				p.wakes++
				if cpu != p.cpus[next] {
					p.elsewhere++
				}
			}
			next++
		}
		if next == len(p.stamps) || count > 0 {
			break
		}
	}
	t.mark(t.plan.to)
}
