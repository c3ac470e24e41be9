// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

func TestWallClockSaysSo(t *testing.T) {
	c := climb(1, "eevdf")
	c.Spoil = func(rec *bench.Record) { rec.Machine.Clock = bench.ClockHost }
	r := made(t, c, climb(1, "eevdf"))
	if len(r.Sections) != 2 {
		t.Fatalf("%d sections: clocks share a table", len(r.Sections))
	}
	lacks(t, plainText(r.Sections[0].Caveats()...), "Time is the host's")
	lacks(t, plainText(r.Sections[1].Caveats()...), "Time is virtual")
}

// What one boot does to all windows is in no interval of theirs, and what talks to others
// cannot be had again.
func TestOneBootIsSaidToBeOne(t *testing.T) {
	c := short(6, "eevdf", "temper")
	c.Spoil = func(rec *bench.Record) {
		rec.Machine.Clock, rec.Machine.Cluster = bench.ClockOpen, &bench.Cluster{}
	}
	open := made(t, c)
	text := plainText(render(t, open, "one boot"))
	lacks(t, text, "6 seeds on one boot · ", "Figures are of 6 seeds on one boot.", "not what another boot would change", "Bands are the intervals of seeds on one boot.", "They cannot be run again", "<code>eevdf</code> is Temper&#39;s agent in safe mode")
	for _, claim := range []string{"intervals are 95 %", "Bands are 95 %", "temper-lab rerun", "`"} {
		if strings.Contains(text, claim) {
			t.Errorf("%q is said of one boot", claim)
		}
	}
	c.Seeds = 1
	lacks(t, plainText(made(t, c).Sections[0].Caveats()...), "One seed on one boot")

	boots := made(t, short(6, "eevdf", "temper"))
	lacks(t, plainText(render(t, boots, "boots")), "6 seeds · ", "intervals are 95 %", "They can be run again, to the last bit (<code>temper-lab rerun</code>).")
	both := &Report{Source: "both", Sections: append(boots.Sections, open.Sections...)}
	lacks(t, plainText(render(t, both, "both")), "Those of virtual time, in a guest that talks to nobody, can be run again (<code>temper-lab rerun</code>).")
}

// Where all vCPUs share one clock, a busier guest is a slower one: what is held
// against `static` at the same density says something, a density against another nothing.
func TestSharedClocksAreComparedAtEqualDensity(t *testing.T) {
	c := climb(5, "temper", "eevdf", "static")
	c.Spoil = func(rec *bench.Record) { rec.Machine.Clock = bench.ClockShared }
	r := made(t, c)
	s := r.Sections[0]
	if top := s.Main.cell("temper", 16); math.Abs(top.Growth.Figure-top.TailRatio(s.Main.cell("static", 16).Cell, .99).Figure) > 1e-9 {
		t.Errorf("growth %+v is not over static", top.Growth)
	}
	if own := s.Main.cell("static", 16); own.Growth.Known() || s.Main.SLO != 0 {
		t.Errorf("static's growth %+v, objective %v: want none", own.Growth, s.Main.SLO)
	}
	text := plainText(s.Headline()...)
	lacks(t, text, "that under static under temper; ")
	var all strings.Builder
	if err := errors.Join(r.Text(&all), r.Markdown(&all), r.HTML(&all)); err != nil {
		t.Fatal(err)
	}
	lacks(t, all.String(), "over static", "p99 over that under static")
	for _, claim := range []string{"its own without any", "own idle", "null: nearly idle", "broken at", "times idle"} {
		if strings.Contains(text+all.String(), claim) {
			t.Errorf("%q is said of a clock that all vCPUs share", claim)
		}
	}
}
