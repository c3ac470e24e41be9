// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/temper-sched/temper/internal/bench/stats"
)

// The note of a line across covers no marker.
func TestNoteLeavesMarkersFree(t *testing.T) {
	at := func(first float64) float64 {
		e := stats.Estimate{Figure: first, Low: first, High: first, Seeds: 8}
		c := chart{steps: []string{"0", "4"}, limit: 50, note: "objective"}
		c.y = axis{low: 0, high: 100, from: plotB, to: plotT}
		c.series = []series{{points: []point{{x: e, y: e}}}}
		return c.noteAt() - c.y.at(c.limit)
	}
	for name, c := range map[string]struct {
		first float64
		below bool
	}{"far above": {90, false}, "just above": {54, true}, "just below": {46, false}} {
		if got := at(c.first) > 0; got != c.below {
			t.Errorf("%s: the note is below the line: %v, want %v", name, got, c.below)
		}
	}
}
