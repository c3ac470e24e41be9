// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// short is climb at one point, alone and at the top.
func short(seeds int, arms ...string) invented.Campaign {
	c := climb(seeds, arms...)
	c.Scenario.Points, c.Scenario.Densities = c.Scenario.Points[1:], []int{0, 16}
	return c
}

// until has an arm's windows of so many seeds only.
func until(c invented.Campaign, seeds map[string]uint64) invented.Campaign {
	c.Spoil = func(rec *bench.Record) {
		if most := seeds[rec.Arm.Name]; most > 0 && rec.Seed > most {
			rec.Window.Primary.Wrong = 1
		}
	}
	return c
}

// The directory has eight seeds, but a figure of fewer is one of fewer.
func TestSeedsCaveatIsOfTheFigures(t *testing.T) {
	const drawn = "range of what they can be drawn to"
	for name, tc := range map[string]struct {
		all  int
		of   map[string]uint64
		want []string
	}{
		"all alike": {8, nil, []string{"Figures are of 8 seeds; intervals are 95 %"}},
		"one void":  {8, map[string]uint64{"temper": 7}, []string{"Figures are of 7 to 8 seeds; intervals are 95 %"}},
		"two of eight": {8, map[string]uint64{"eevdf": 2}, []string{
			"Figures are of 2 to 8 seeds", "Intervals of 5 and more are 95 %", drawn, "about 50 to 88 % of campaigns",
		}},
		"one of eight": {8, map[string]uint64{"eevdf": 1}, []string{"Figures are of 1 to 8 seeds", "One seed has none"}},
		"few and one":  {4, map[string]uint64{"eevdf": 3}, []string{"Figures are of 3 to 4 seeds only", drawn, "about 75 to 88 % of campaigns"}},
		"two and one":  {2, map[string]uint64{"eevdf": 1}, []string{"Figures are of 1 to 2 seeds only", "about 50 % of campaigns", "One seed has none"}},
	} {
		s := made(t, until(short(tc.all, "eevdf", "temper"), tc.of)).Sections[0]
		text := plainText(s.Caveats()...)
		lacks(t, text, tc.want...)
		if tc.of["eevdf"] == 2 {
			lacks(t, plainText(render(t, &Report{Source: name, Sections: []*Section{s}}, "seeds")), "Bands are 95 % intervals where there are 5 seeds or more.")
		}
	}
	// Each arm has six seeds, of which both have two.
	apart := short(10, "eevdf", "temper")
	apart.Spoil = func(rec *bench.Record) {
		if rec.Arm.Name == "eevdf" && rec.Seed > 6 || rec.Arm.Name == "temper" && rec.Seed < 5 {
			rec.Window.Primary.Wrong = 1
		}
	}
	lacks(t, plainText(made(t, apart).Sections[0].Caveats()...), "Figures are of 2 to 6 seeds")
}
