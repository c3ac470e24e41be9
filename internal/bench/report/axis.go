// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
)

// axis maps values to a stretch of the drawing.
type axis struct {
	label  string // with its unit
	log    bool
	format func(float64) string // of a tick
	low    float64
	high   float64
	from   float64 // where low is drawn
	to     float64
	cut    bool // what lies beyond the ends is not drawn, instead of at them
}

// fit sets the ends so that all values fit: from 0 on a linear axis, at the
// nearest of 1, 2, 5 on a logarithmic one. NaN does not count, and neither
// does what a logarithm cannot show.
func (a *axis) fit(values ...float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.log || v > 0) {
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	switch {
	case math.IsInf(low, 1):
		a.low, a.high = 0, 1
		if a.log {
			a.low, a.high = 1, 10
		}
	case a.log:
		a.low, a.high = stepBelow(low), stepAbove(high*0.999999)
	default:
		step := linearStep(high)
		a.low, a.high = 0, math.Max(step, step*math.Ceil(high/step-1e-9))
	}
}

// at is where v is drawn.
func (a *axis) at(v float64) float64 {
	of := func(v float64) float64 { return v }
	if a.log {
		of = math.Log10
	}
	if !a.cut {
		v = math.Min(math.Max(v, a.low), a.high)
	}
	return a.from + (of(v)-of(a.low))/(of(a.high)-of(a.low))*(a.to-a.from)
}

// ticks are the values with a line, at most eight.
func (a *axis) ticks() []float64 {
	var out []float64
	if !a.log {
		step := linearStep(a.high - a.low)
		for v := step*math.Ceil(a.low/step-1e-9) + 0; v <= a.high+step/1e6; v += step {
			out = append(out, v)
		}
		return out
	}
	for v := a.low; v <= a.high*1.000001; v = stepAbove(v * 1.000001) {
		out = append(out, v)
	}
	if len(out) <= 8 {
		return out
	}
	return decades(a.low, a.high)
}

// decades are the powers of ten between two values, every second where there
// are many.
func decades(low, high float64) []float64 {
	first, last := math.Ceil(math.Log10(low)-1e-9), math.Floor(math.Log10(high)+1e-9)
	step := math.Max(1, math.Ceil((last-first)/8))
	var out []float64
	for e := first; e <= last; e += step {
		out = append(out, math.Pow(10, e))
	}
	return out
}

// linearStep is a round distance that gives three to seven ticks up to high.
func linearStep(high float64) float64 {
	if high <= 0 {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(high)))
	for _, m := range []float64{0.2, 0.5, 1} {
		if high/(m*base) <= 7 {
			return m * base
		}
	}
	return 2 * base
}

// stepBelow and stepAbove are the neighbours of v in …, 1, 2, 5, 10, 20, ….
func stepBelow(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*base <= v {
			return m * base
		}
	}
	return base
}

func stepAbove(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*base > v {
			return m * base
		}
	}
	return 10 * base
}
