// SPDX-License-Identifier: Apache-2.0

package report

import (
	"regexp"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

// What the figures are not is a click away from where they begin.
func TestTheClockLinksToWhatItMeans(t *testing.T) {
	wall := climb(1, "eevdf")
	wall.Spoil = func(rec *bench.Record) { rec.Machine.Clock = bench.ClockHost }
	lacks(t, render(t, made(t, climb(1, "eevdf"), wall), "clocks"),
		`<a href="#s1-caveats">virtual`+nbsp+`time</a>`, `id="s1-caveats"`, `<a href="#s2-caveats">wall`+nbsp+`clock</a>`, `id="s2-caveats"`)
}

// A figure, its unit and its interval stay on one line, as does the step that a column is of.
func TestLinesBreakBetweenFigures(t *testing.T) {
	text := render(t, made(t, climb(5, "eevdf", "temper")), "lines")
	lacks(t, text, ">p99 at"+nbsp+"16</th>", "5"+nbsp+"seeds · ", "(2.58"+wordJoiner+"–"+wordJoiner+"2.60)")
	if headline, _, _ := strings.Cut(text[strings.Index(text, `<div class="said">`):], "</div>"); regexp.MustCompile(`[0-9]–`).MatchString(headline) {
		t.Errorf("an interval may break: %s", headline)
	}
}
