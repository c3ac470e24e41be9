// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
)

// fewSeeds cannot give an interval of 95 %: theirs is the range of what they can be drawn to.
const fewSeeds = 5

// tooFew says that figures are of fewer, "" if they are not.
func tooFew(seeds int) string {
	if seeds >= fewSeeds {
		return ""
	}
	return fmt.Sprintf(", of %s, too few to tell", number(seeds, "seed"))
}

// seedsCaveat says what intervals are worth.
func (s *Section) seedsCaveat() string {
	const drawn = "the range of what they can be drawn to"
	few, most := s.seeds()
	of := between(int64(few), int64(most))
	if s.OneBoot() {
		return oneBootCaveat(of, most)
	}
	switch {
	case most == 1 && len(s.Seeds) == 1:
		return fmt.Sprintf("One seed (%d): a repetition gives the same samples, so there are no intervals, and differences of a few percent mean nothing.", s.Seeds[0])
	case most == 1:
		return "One seed for each figure: a repetition gives the same samples, so there are no intervals, and differences of a few percent mean nothing."
	case few >= fewSeeds:
		return fmt.Sprintf("Figures are of %s seeds; intervals are 95%s%%, by drawing the seeds anew 10,000 times (the seeds, not the requests, are what was repeated).", of, nbsp)
	case few == most:
		return fmt.Sprintf("%d seeds only: the interval is %s, and holds the truth in about %s of campaigns instead of 95.", few, drawn, held(few, few))
	}
	text := fmt.Sprintf("Figures are of %s seeds only. The interval is %s, and holds the truth in about %s of campaigns instead of 95.", of, drawn, held(few, most))
	if most >= fewSeeds {
		text = fmt.Sprintf("Figures are of %s seeds. Intervals of %d and more are 95%s%%, by drawing the seeds anew 10,000 times (the seeds, not the requests, are what was repeated); those of fewer are %s, and hold the truth in about %s of campaigns instead of 95.", of, fewSeeds, nbsp, drawn, held(few, fewSeeds-1))
	}
	if few == 1 {
		text += " One seed has none."
	}
	return text
}

// OneBoot says whether one guest served all windows: what a boot does to figures is in all
// of them alike.
func (s *Section) OneBoot() bool { return s.Machine.Clock == bench.ClockOpen }

func oneBootCaveat(of string, most int) string {
	if most == 1 {
		return "One seed on one boot: there are no intervals, and differences of a few percent mean nothing."
	}
	return fmt.Sprintf("Figures are of %s seeds on one boot. Intervals are by drawing these seeds anew 10,000 times: they hold by what windows of that boot differ, not what another boot would change, and so are no 95%s%% intervals.", of, nbsp)
}

// held is in how many campaigns of a hundred the range of so many seeds holds the truth.
func held(few, most int) string {
	share := func(n int) string { return fmt.Sprintf("%.0f", 100*(1-math.Pow(.5, float64(n-1)))) }
	least, top := share(max(few, 2)), share(most)
	if least == top {
		return least + nbsp + "%"
	}
	return least + " to " + top + nbsp + "%"
}

// seeds is the fewest and the most behind a figure: those of a step, or of a ratio those
// that both its steps have. Where all windows are void, it is the directory's.
func (s *Section) seeds() (few, most int) {
	var all []int
	for i := range s.Points {
		p := &s.Points[i]
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				all = append(all, c.Background.Seeds, c.Growth.Seeds)
				for _, base := range []string{ours, r.Base(), stock + strings.TrimPrefix(r.Name, r.Base())} {
					all = append(all, c.shared(p.cell(base, c.Density)))
				}
			}
		}
	}
	all = slices.DeleteFunc(all, func(n int) bool { return n == 0 })
	if len(all) == 0 {
		return len(s.Seeds), len(s.Seeds)
	}
	return slices.Min(all), slices.Max(all)
}

// shared is how many seeds two cells have in common.
func (c Cell) shared(other Cell) int {
	if c.Requests == 0 {
		return c.ValueRatio(other.Cell, perOp).Seeds
	}
	theirs, n := other.Latency(), 0
	for seed := range c.Latency() {
		if _, ok := theirs[seed]; ok {
			n++
		}
	}
	return n
}
