// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

// What the figures are not is a click away from where they begin.
func TestTheClockLinksToWhatItMeans(t *testing.T) {
	wall := climb(1, "eevdf")
	wall.Spoil = func(rec *bench.Record) { rec.Machine.Clock = bench.ClockHost }
	lacks(t, render(t, made(t, climb(1, "eevdf"), wall), "clocks"),
		`<a href="#s1-caveats">virtual time</a>`, `id="s1-caveats"`, `<a href="#s2-caveats">wall clock</a>`, `id="s2-caveats"`)
}
