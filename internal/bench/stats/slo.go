// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"strconv"
)

// sloFactor times the tail of the stock kernel without background is the
// objective: fixed before anything is measured, the same for every arm.
const sloFactor = 2

// SLO returns the latency objective that follows from the stock kernel's p99
// without background.
func SLO(stockIdle Estimate) float64 { return sloFactor * stockIdle.Figure }

// Step is an arm's tail at one density.
type Step struct {
	Density int
	Tail    Estimate
}

// Break is the density at which an arm breaks the objective.
type Break struct {
	Density float64
	// Censored: it held at every density tried, of which Density is the highest.
	Censored bool
	// Known is false if there was no step to judge by.
	Known bool
}

// BreakDensity finds where the tail leaves the objective on a ladder sorted by
// density: at the first step whose interval lies above it, and between that
// step and the one before by interpolating the logarithm of the figures.
func BreakDensity(ladder []Step, slo float64) Break {
	var before *Step
	for i, step := range ladder {
		switch {
		case !step.Tail.Known():
			continue
		case step.Tail.Low <= slo:
			before = &ladder[i]
			continue
		case before == nil:
			return Break{Density: float64(step.Density), Known: true}
		}
		share := 0.0 // the figure before may lie above already, its interval not
		if before.Tail.Figure < slo {
			share = min(max(math.Log(slo/before.Tail.Figure)/math.Log(step.Tail.Figure/before.Tail.Figure), 0), 1)
		}
		return Break{Density: float64(before.Density) + share*float64(step.Density-before.Density), Known: true}
	}
	if before == nil {
		return Break{}
	}
	return Break{Density: float64(before.Density), Censored: true, Known: true}
}

// String is "2.4", or "> 16" where the objective held to the end.
func (b Break) String() string {
	switch {
	case !b.Known:
		return "–"
	case b.Censored:
		return fmt.Sprintf("> %g", b.Density)
	}
	return strconv.FormatFloat(b.Density, 'f', 1, 64)
}
