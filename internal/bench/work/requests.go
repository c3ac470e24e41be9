// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// KindRequests is threads that compute one request after the other, in units,
// and note when they ran: without a rate each begins its next request at once,
// with one at random moments.
const KindRequests = "requests"

// segment is a stretch in which a thread ran.
type segment struct{ from, to int64 }

// stamps are what a thread of this kind notes of itself.
type stamps struct {
	segments []segment
	n        int
	from     int64 // of the segment in progress
	began    int64 // when the thread was first seen in it, and its CPU clock then
	cpuBegan int64
	last     int64 // the latest stamp
	unit     int64 // what a piece of work takes
	least    int64 // a longer time without running ends a segment
	units    int64 // in a request
	lost     int64 // segments that there was no room for
}

// requests: Work is the unit, Busy the request.
func (w *work) requests() error {
	s := w.spec
	if s.Work <= 0 || s.Busy < s.Work || s.Busy%s.Work != 0 {
		return fmt.Errorf("prepare %s: requests of %v are no units of %v", s.Kind, s.Busy, s.Work)
	}
	// A unit is computing and the stamp after it.
	w.plan.loops = calibrate(s.Work - min(stampCost(), s.Work/2))
	for _, t := range w.threads {
		// Two segments are at least a quarter of a unit apart, and a unit long.
		t.stamps = newStamps(int(s.total()/s.Work)+2, int64(s.Work), int64(s.Busy/s.Work))
	}
	w.part = requestThread
	w.figures = w.requestFigures
	if s.Rate > 0 {
		return w.arrivals(randomly)
	}
	for _, t := range w.threads {
		t.done = newSamples(int(s.total()/s.Busy) + 2)
	}
	return nil
}

func newStamps(room int, unit, units int64) stamps {
	s := stamps{segments: make([]segment, room), unit: unit, least: unit / 4, units: units}
	for i := range s.segments {
		s.segments[i].from = -1 // every page is touched before it counts
	}
	return s
}

// stampCost is what a stamp takes: the difference of two and one, without what
// the looks at the clock around them take.
func stampCost() time.Duration {
	t := &thread{stamps: stamps{least: 1 << 62}}
	takes := func(n int) int64 {
		return shortest(64, func() int64 {
			begin := t.now()
			for range n {
				t.stamp(0)
			}
			return t.now() - begin
		})
	}
	return time.Duration(max(takes(2)-takes(1), 0))
}

func (w *work) requestFigures(r *bench.Result) {
	r.Parts[PartCompletion] = hist(w.threads, completions)
	r.Latency = r.Parts[PartCompletion]
	r.Slowest = slowest(w.threads, completions)
	if w.spec.Rate > 0 {
		w.served(r)
		w.waits(r)
		r.Requests = int(r.Latency.Count()) + r.Lost
	} else {
		r.Requests = int(r.Latency.Count())
		done := 0
		for _, t := range w.threads {
			for _, d := range t.done.all[:t.done.n] {
				if t.inWindow(d.due + d.took) {
					done++
				}
			}
		}
		r.Achieved = float64(done) / w.spec.Window.Seconds()
	}
	if r.Requests == 0 {
		r.Latency = nil
	}
	delete(r.Parts, PartCompletion)
	r.Values[ValueClaimed] = float64(r.Ops) * float64(w.spec.Work)
}

// requestThread goes on until the tail's end, so that the node's counters, read
// after the window, are of the same load.
//
//go:norace
//go:nosplit
func requestThread(t *thread) {
	t.sleepUntil(t.plan.begin)
	t.stamp(0)
	for i := 0; ; i++ {
		at := t.stamps.last
		if len(t.due) > 0 {
			if i == len(t.due) {
				break
			}
			at = t.due[i]
			if t.sleepUntil(at) {
				t.stamp(0)
			} else if t.inWindow(at) {
				t.missed++
			}
		}
		if t.stamps.last > t.plan.end {
			t.giveUpRequests(i)
			break
		}
		for range t.stamps.units {
			t.idle = burn(t.idle, t.plan.loops)
			t.stamp(t.stamps.unit)
			if t.busyFrom != 0 && t.busyTo == 0 {
				t.ops++
			}
			t.mark(t.stamps.last)
		}
		t.done.add(at, t.stamps.last-at)
	}
	t.mark(t.plan.to)
	t.closeSegment(t.stamps.last)
}

// giveUpRequests counts what was never begun as having waited until now.
//
//go:norace
//go:nosplit
func (t *thread) giveUpRequests(next int) {
	for ; next < len(t.due); next++ {
		if at := t.due[next]; t.inWindow(at) {
			t.done.add(at, t.stamps.last-at)
			t.unserved++
		}
	}
}

// stamp notes that the thread runs now and has run for so long since the stamp
// before. Where more time has passed, one segment ends and another begins; what
// it did run in between is given to both in halves.
//
// How long that was the thread's CPU clock says, switches included, but never less
// than the work took: the clock is the scheduler's book, and what is measured is
// whether the limit is kept, by that book or not. It is asked only then: to ask it
// is to make the kernel write the book, which nothing else does for the thread.
//
//go:norace
//go:nosplit
func (t *thread) stamp(ran int64) {
	s := &t.stamps
	now := t.now()
	switch {
	case s.from == 0:
		s.from, s.began, s.cpuBegan = now, now, t.cpuTime()
	case now-s.last-ran > s.least:
		cpu := t.cpuTime()
		ran = min(max(ran, cpu-s.cpuBegan-(s.last-s.began)), now-s.last)
		t.closeSegment(s.last + ran/2)
		s.from, s.began, s.cpuBegan = now-ran/2, now, cpu
	}
	s.last = now
}

//go:norace
//go:nosplit
func (t *thread) closeSegment(at int64) {
	s := &t.stamps
	if s.n == len(s.segments) {
		s.lost++
		return
	}
	s.segments[s.n] = segment{s.from, at}
	s.n++
}

// trace is what the threads noted of the window.
func (w *work) trace() (Trace, error) {
	tr := newTrace(w.spec.Window)
	var running, wanted []Span
	for _, t := range w.threads {
		s := &t.stamps
		if s.lost > 0 {
			return tr, fmt.Errorf("trace thread %d of %s: %d times that it ran do not fit", t.id, w.spec.Kind, s.lost)
		}
		for _, g := range s.segments[:s.n] {
			span := Span{time.Duration(g.from - t.plan.from), time.Duration(g.to - t.plan.from)}
			tr.charge(span)
			running = append(running, span)
		}
		for _, d := range t.done.all[:t.done.n] {
			wanted = append(wanted, Span{time.Duration(d.due - t.plan.from), time.Duration(d.due + d.took - t.plan.from)})
		}
	}
	if w.spec.Rate == 0 {
		wanted = []Span{{0, w.spec.Window}} // whatever was begun
	}
	tr.Running, tr.Wanted = union(running, w.spec.Window), union(wanted, w.spec.Window)
	return tr, nil
}
