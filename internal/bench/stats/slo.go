// SPDX-License-Identifier: Apache-2.0

package stats

import "fmt"

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

// BreakDensity says where the tail leaves the objective on a ladder sorted by density: after
// the last density whose whole interval is within it, "0–16", and at the latest at the first
// whose whole interval lies above. What lies between was not measured. "> 16" is a tail within
// it at every density, "not shown" one whose last interval does not tell.
func BreakDensity(ladder []Step, slo float64) string {
	held, last := -1, None()
	for _, step := range ladder {
		switch tail := step.Tail; {
		case !tail.Known():
			continue
		case tail.High <= slo:
			held = step.Density
		case tail.Low <= slo: // either
		case step.Density == 0:
			return "at once"
		case held < 0:
			return fmt.Sprintf("≤ %d", step.Density)
		default:
			return fmt.Sprintf("%d–%d", held, step.Density)
		}
		last = step.Tail
	}
	switch {
	case !last.Known():
		return "–"
	case last.High > slo:
		return "not shown"
	}
	return fmt.Sprintf("> %d", held)
}
