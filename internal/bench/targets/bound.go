// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"fmt"

	"github.com/temper-sched/temper/internal/bench/stats"
)

// bound is a condition on a figure.
type bound struct {
	limit float64
	least bool // the figure must be at least the limit, else at most
	// notWorse asks less: no difference for the worse may be shown. Of a
	// figure that should equal the limit half the intervals reach beyond it.
	notWorse bool
	strict   bool // the limit itself is too much
	format   func(float64) string
}

func atMost(limit float64, format func(float64) string) bound {
	return bound{limit: limit, format: format}
}

func atLeast(limit float64, format func(float64) string) bound {
	return bound{limit: limit, least: true, format: format}
}

// String is "≤ 1.05×".
func (b bound) String() string {
	switch {
	case b.notWorse:
		return "not shown to be above " + b.format(b.limit)
	case b.strict:
		return "< " + b.format(b.limit)
	case b.least:
		return "≥ " + b.format(b.limit)
	}
	return "≤ " + b.format(b.limit)
}

// end is the interval's end that must be within the bound. A condition is met
// when the whole interval meets it; to be no worse, when some of it does.
func (b bound) end(e stats.Estimate) float64 {
	if b.least != b.notWorse {
		return e.Low
	}
	return e.High
}

func (b bound) met(e stats.Estimate) bool {
	if b.least {
		return b.end(e) >= b.limit
	}
	return b.end(e) < b.limit || b.end(e) == b.limit && !b.strict
}

// within says whether the figure alone meets the bound.
func (b bound) within(e stats.Estimate) bool {
	if b.least {
		return e.Figure >= b.limit
	}
	return e.Figure <= b.limit
}

// fewSeeds cannot give an interval of 95 %: theirs is the range of what they were.
const fewSeeds = 5

// provingSeeds are the fewest that decide anything: their interval holds the truth in
// seven campaigns of eight, that of three in three of four.
const provingSeeds = 4

// proves says whether the figure rests on enough.
func (s sample) proves() bool { return s.Seeds >= provingSeeds }

// few says of how many seeds a sample is that proves nothing.
func (s sample) few() string {
	if s.HasInterval() {
		return fmt.Sprintf("%d seeds are too few", s.Seeds)
	}
	return "one seed is too few"
}

// part judges the worst of samples. Without any, or without one that is known to be
// the worst, the part is open.
func (b bound) part(what string, samples []sample) Part {
	s, void, doubt, ok := worst(samples, b)
	p := Part{What: what, Bound: b.String(), Void: void}
	if !ok {
		return p
	}
	met := b.met(s.Estimate)
	figure := s.Figure
	p.Figure, p.Met, p.Where = &figure, &met, s.step()
	p.Record = s.ladder.Source
	p.Text = b.format(s.Figure)
	switch {
	case met && void != "":
		p.Met, p.Note = nil, void
	case met && doubt != "":
		p.Met, p.Note = nil, doubt
	case !s.proves():
		p.Note = s.few()
		// What few boots happened to give neither proves a bound nor shows a
		// difference; beyond a bound it counts as a miss until more is known.
		if met || b.notWorse {
			p.Met = nil
		}
	case !met && !s.worst && b.within(s.Estimate):
		p.Note = "the figure is within the bound, its interval is not: more seeds would tell"
	}
	if s.HasInterval() && !s.worst {
		p.Interval = &[2]float64{s.Low, s.High}
		p.Text += fmt.Sprintf(" (%s to %s)", b.format(s.Low), b.format(s.High))
		if s.Seeds < fewSeeds {
			p.Text += fmt.Sprintf(" of %d seeds", s.Seeds)
		}
	}
	return p
}

// The ways figures are written.

func times(v float64) string { return fmt.Sprintf("%.3g×", v) }

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

func share(v float64) string { return fmt.Sprintf("%.2g", v) }

func duration(ns float64) string {
	switch {
	case ns == 0:
		return "0"
	case ns < 999.5e3:
		return fmt.Sprintf("%.3g µs", ns/1e3)
	case ns < 999.5e6:
		return fmt.Sprintf("%.3g ms", ns/1e6)
	}
	return fmt.Sprintf("%.3g s", ns/1e9)
}

func factor(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2f×", v)
	}
	return times(v)
}
