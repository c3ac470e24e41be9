// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Control is a check of the instrument: what it should show and what it did.
type Control struct {
	Name   string
	Should string
	Did    string
	State  State
}

// State says how a control came out.
type State string

// The states, as tables show them.
const (
	AsExpected State = "as expected"
	Unexpected State = "NOT as expected"
	Told       State = "for the reader"
)

// Class is the state's name in style sheets.
func (c Control) Class() string {
	return map[State]string{AsExpected: "ok", Unexpected: "no", Told: "told"}[c.State]
}

// compared is one step's ratio of tails.
type compared struct {
	stats.Estimate
	where string
	tail  string // which quantile
}

// Controls lists the checks that the records contain.
func (s *Section) Controls() []Control {
	var out []Control
	for _, a := range s.Arms {
		base := s.Arm(a.Base())
		switch {
		case base == nil || base == a:
		case a.Again:
			out = append(out, s.again(a, base)...)
		case a.Inverted:
			out = append(out, s.inverted(a, base)...)
		case a.NoProbe && !a.Ablation():
			out = append(out, s.noProbe(a, base)...)
		}
	}
	return slices.Concat(out, s.null(), s.upAndDown(), s.clients())
}

// ratios compares two arms at every step that both have.
func (s *Section) ratios(a, base *ladder.Arm) []compared {
	var out []compared
	for i := range s.Points {
		p := &s.Points[i]
		for _, d := range p.Densities {
			if e := p.tailRatio(a.Cell(p.Name, d), base.Cell(p.Name, d)); e.Known() {
				out = append(out, compared{e, s.step(p, d), p.tailName()})
			}
		}
	}
	return out
}

// step names a step for people.
func (s *Section) step(p *Point, density int) string {
	where := number(density, s.Scenario.Neighbour())
	if p.Name != "" && len(s.Points) > 1 {
		where = p.Name + ", " + where
	}
	return where
}

// farthest is the ratio farthest from 1.
func farthest(all []compared) compared {
	return slices.MaxFunc(all, func(a, b compared) int {
		x, y := math.Abs(math.Log(a.Figure)), math.Abs(math.Log(b.Figure))
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return strings.Compare(b.where, a.where)
	})
}

// claimed is how large a difference must be, beside an interval that leaves out
// 1, before a control counts it.
const claimed = 0.05

// judged are the ratios that a control goes by: the interval of few seeds is too narrow
// to judge by. Where all are of few they are shown, and nothing is judged.
func judged(all []compared) []compared {
	enough := slices.DeleteFunc(slices.Clone(all), func(c compared) bool { return c.Seeds < fewSeeds })
	if len(enough) == 0 {
		return all
	}
	return enough
}

// allowance says what same does not hold against ratios that should be 1.
func allowance(all []compared) string {
	all = judged(all)
	return fmt.Sprintf("of %s chance lets up to %d leave out 1; more are too many if one of them is off by more than 5 %%", number(len(all), "interval"), stats.ByChance(len(all)))
}

// same judges ratios that should be 1. With dozens of intervals some leave it out by
// chance, and the tail of an arm that has two modes may be far off where one does: it
// takes both, a large difference and more of them than chance makes.
func same(all []compared) (did string, state State) {
	few := len(all) - len(judged(all))
	all = judged(all)
	off, differ := 0, 0
	for _, c := range all {
		if c.Excludes(1) {
			off++
			if math.Abs(c.Figure-1) > claimed {
				differ++
			}
		}
	}
	far := farthest(all)
	did = fmt.Sprintf("%d of %d intervals leave out 1; farthest %s (%s)", off, len(all), with(far.Estimate, fold), far.where)
	if few > 0 {
		did += fmt.Sprintf("; not judged: %d of fewer than %d seeds", few, fewSeeds)
	}
	switch {
	case far.Seeds < fewSeeds:
		return did, Told
	case off > stats.ByChance(len(all)) && differ > 0:
		return did, Unexpected
	}
	return did, AsExpected
}

// again: the A/A control.
func (s *Section) again(a, base *ladder.Arm) []Control {
	all := s.ratios(a, base)
	if len(all) == 0 {
		return nil
	}
	did, state := same(all)
	return []Control{{
		Name: "A/A: " + a.Name + " against " + base.Name, Should: "be the same: " + allowance(all),
		Did: did, State: state,
	}}
}

// inverted: the positive control must look bad where background competes.
func (s *Section) inverted(a, base *ladder.Arm) []Control {
	if s.Main == nil || s.Main.Top() == 0 {
		return nil
	}
	top := s.Main.Top()
	e := s.Main.tailRatio(a.Cell(s.Main.Name, top), base.Cell(s.Main.Name, top))
	if !e.Known() {
		return nil
	}
	c := Control{
		Name: "positive: " + a.Name, Should: "look clearly worse than " + base.Name + ", or the scenario cannot tell good from bad",
		Did: fmt.Sprintf("%s %s at %s", s.Main.tailName(), with(e, fold), s.step(s.Main, top)), State: AsExpected,
	}
	switch {
	case e.Seeds < fewSeeds && e.Low <= 1+claimed: // by that much chance may do it
		c.Did += tooFew(e.Seeds)
		c.State = Told
	case e.Low <= 1:
		c.State = Unexpected
	}
	return []Control{c}
}

// noProbe: what measuring costs.
func (s *Section) noProbe(a, base *ladder.Arm) []Control {
	all := s.ratios(base, a)
	if len(all) == 0 {
		return nil
	}
	most := slices.MaxFunc(all, func(a, b compared) int { return cmp.Compare(a.Figure, b.Figure) })
	return []Control{{
		Name: "the probe in " + base.Name, Should: "cost little, and as much in every arm",
		Did: fmt.Sprintf("%s with the probe is at most %s of that without (%s)", most.tail, with(most.Estimate, fold), most.where), State: Told,
	}}
}

// null: nearly idle, so that background has nothing to take away.
func (s *Section) null() []Control {
	i := slices.IndexFunc(s.Points, func(p Point) bool { return p.Name == ladder.Null })
	if i < 0 || !s.Points[i].Climbs() || s.Points[i].Occupied {
		return nil
	}
	p := &s.Points[i]
	var parts []string
	for _, r := range p.Rivals() {
		if e := r.at(p.Top()).Growth; e.Known() {
			parts = append(parts, fmt.Sprintf("%s %s", with(e, fold), r.Name))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []Control{{
		Name: "null: nearly idle", Should: "show what a wakeup alone loses to background: hardly any queueing adds to it",
		Did: fmt.Sprintf("%s at %s against none: %s", p.tailName(), number(p.Top(), p.Neighbour), list(parts)), State: Told,
	}}
}

// upAndDown compares the first visit of a step with the last.
func (s *Section) upAndDown() []Control {
	var all []compared
	for i := range s.Points {
		p := &s.Points[i]
		for _, r := range p.Rivals() {
			for _, c := range r.Cells {
				up, down, ok := c.Visits()
				if !ok || !p.carries(p.Tail, min(up.Total(), down.Total())) {
					continue
				}
				if e := stats.QuantileRatio(up, down, p.Tail); e.Known() {
					all = append(all, compared{e, r.Name + ", " + s.step(p, c.Density), p.tailName()})
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	did, state := same(all)
	return []Control{{
		Name: "ladder up and down", Should: "be the same on both ways, with no memory of the steps before: " + allowance(all),
		Did: did, State: state,
	}}
}
