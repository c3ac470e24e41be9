// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/temper-sched/temper/internal/bench"
)

// burst: each thread computes for a while at random moments. An arrival that
// finds its thread busy waits for it, as a request would.
func (w *work) burst() error {
	if w.spec.Work <= 0 {
		return fmt.Errorf("prepare %s: no work", w.spec.Kind)
	}
	w.part = burstThread
	w.figures = func(r *bench.Result) {
		w.waited(r)
		w.served(r)
		r.Parts[PartCompletion] = hist(w.threads, completions)
		w.waits(r)
		r.Values[ValueClaimed] = float64(r.Ops) * float64(w.spec.Work)
	}
	return w.arrivals(randomly)
}

//go:norace
//go:nosplit
func burstThread(t *thread) {
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
		// Counted like the CPU time: from the first to be begun in the window
		// to the first to be begun after it.
		if t.busyFrom != 0 && t.busyTo == 0 {
			t.ops++
		}
		t.idle = burn(t.idle, t.plan.loops)
		t.done.add(at, t.now()-at)
	}
	t.mark(t.plan.to)
}

// phases: all threads compute, in units, until a phase ends, and then all wait
// for the next. Units ended in the window are the primary's throughput.
func (w *work) phases() error {
	s := w.spec
	if s.Work <= 0 || s.Busy <= s.Work || s.Idle <= 0 {
		return fmt.Errorf("prepare %s: busy %v and idle %v with units of %v", s.Kind, s.Busy, s.Idle, s.Work)
	}
	// One list for all threads: beginnings and ends in turn.
	r := rand.New(rand.NewPCG(s.Seed, 0))
	var at []int64
	for next := int64(r.Float64() * float64(s.Idle)); next < int64(s.total()); {
		end := next + int64(evenly(r)*float64(s.Busy))
		at = append(at, next, end)
		next = end + int64(evenly(r)*float64(s.Idle))
	}
	for _, t := range w.threads {
		w.offsets = append(w.offsets, at)
		t.due, t.late = slices.Clone(at), newSamples(len(at))
	}
	w.part = phasesThread
	w.figures = func(r *bench.Result) {
		w.waited(r)
		r.Achieved = float64(r.Ops) / s.Window.Seconds()
		r.Values[ValueClaimed] = float64(r.Ops) * float64(s.Work)
		r.Values[ValuePhases] = busyShare(w.threads[0])
	}
	return nil
}

// ValuePhases is the share of the window in which the primary had work.
const ValuePhases = "phases_busy_ratio"

// busyShare is the part of the window that lies in busy phases.
func busyShare(t *thread) float64 {
	var busy int64
	for i := 0; i+1 < len(t.due); i += 2 {
		busy += max(0, min(t.due[i+1], t.plan.to)-max(t.due[i], t.plan.from))
	}
	return ratio(busy, t.plan.to-t.plan.from)
}

//go:norace
//go:nosplit
func phasesThread(t *thread) {
	for i := 0; i+1 < len(t.due); i += 2 {
		at, end := t.due[i], t.due[i+1]
		slept := t.sleepUntil(at)
		now := t.now()
		if slept {
			t.late.add(at, now-at)
		}
		for t.mark(now); now < end; t.mark(now) {
			t.idle = burn(t.idle, t.plan.loops)
			if now = t.now(); t.inWindow(now) {
				t.ops++
			}
		}
	}
	t.mark(t.plan.to)
}

// gaps: each thread computes for ever and notes every time that it did not.
func (w *work) gaps() error {
	if w.spec.Work <= 0 {
		return fmt.Errorf("prepare %s: no unit", w.spec.Kind)
	}
	for _, t := range w.threads {
		// Two gaps are at least a unit apart.
		t.late = newSamples(int(w.spec.total()/w.spec.Work)/2 + 1)
	}
	w.part = gapsThread
	w.figures = func(r *bench.Result) {
		w.waited(r)
		r.Achieved = float64(r.Ops) / w.spec.Window.Seconds()
	}
	return nil
}

// gapsThread takes for a gap what is longer than two units together. A gap
// belongs to the moment of its end; the last one ends when the thread runs
// again, after the window.
//
//go:norace
//go:nosplit
func gapsThread(t *thread) {
	unit := t.plan.unit
	t.sleepUntil(t.plan.begin)
	for last := t.now(); last < t.plan.to; {
		t.idle = burn(t.idle, t.plan.loops)
		now := t.now()
		if took := now - last; took > 2*unit {
			t.late.add(now, took-unit)
		}
		if t.inWindow(now) {
			t.ops++
		}
		t.mark(now)
		last = now
	}
	t.mark(t.plan.to)
}
