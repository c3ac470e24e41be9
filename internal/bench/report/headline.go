// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench/stats"
)

// Headline says in a few sentences what the records show, whatever that is:
// losses in the same words as wins.
func (s *Section) Headline() []string {
	var out []string
	switch p := s.Main; {
	case p == nil:
		out = []string{"No window is of a step that this scenario has."}
	case p.Waits:
		out = slices.Concat(s.tiersHeadline(), s.silent())
	case comparesPods(s.Scenario):
		out = s.sharesHeadline()
	case s.Scenario.KindOf().Agent:
		out = s.agentHeadline()
	case p.Measured(func(c Cell) stats.Estimate { return c.PerOp }):
		out = s.costHeadline()
	case s.Scenario.Primary.LimitMilliCPU > 0:
		out = slices.Concat(s.limitHeadline(), s.silent())
	case p.Climbs() && p.Measured(func(c Cell) stats.Estimate { return c.Growth }):
		out = slices.Concat(s.growthHeadline(), s.silent(), s.backgroundHeadline(), s.versusHeadline())
	case p.Measured(func(c Cell) stats.Estimate { return c.Tail }):
		out = s.plainHeadline()
	}
	if len(out) == 0 {
		why := "no valid window to make a figure of."
		switch few, most := s.requests(); {
		case few > 0 && !stats.Carries(rare, few) && !notesWaits(s.Scenario):
			why = between(few, most) + " requests in a step, too few for a figure of the tail; the tables have the others."
		case s.hasValid():
			why = "no two arms to hold against each other; the tables have the figures."
		}
		out = []string{capital(s.Scenario.Title) + ": " + why}
	}
	return append(out, s.worstWaits()...)
}

// hasValid says whether any arm has a valid window.
func (s *Section) hasValid() bool {
	for _, p := range s.Points {
		for _, r := range p.Rows {
			if slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Valid() }) {
				return true
			}
		}
	}
	return false
}

// growthHeadline: each arm's tail at the top against what it is held against.
func (s *Section) growthHeadline() []string {
	p := s.Main
	var mine, others, alone []string
	for _, r := range p.Rivals() {
		c := r.at(p.Top())
		if !c.Growth.Known() {
			continue
		}
		if r.Name == ours {
			mine = append(mine, with(c.Growth, fold))
		} else {
			others = append(others, fmt.Sprintf("%s under %s", with(c.Growth, fold), r.Name))
		}
		alone = append(alone, fmt.Sprintf("%s under %s", with(r.at(0).Tail, micros), r.Name))
	}
	if len(alone) == 0 {
		return nil
	}
	beside := fmt.Sprintf("Beside %s, %s%s is", number(p.Top(), "background "+p.Neighbour), s.Subject(p), s.atPoint())
	var out []string
	if len(mine) == 0 || len(others) == 0 {
		for i := range mine {
			mine[i] += " under temper"
		}
		out = append(out, fmt.Sprintf("%s, times %s: %s.", beside, p.reference(), list(slices.Concat(mine, others))))
	} else {
		out = append(out, fmt.Sprintf("%s %s %s under temper; %s.", beside, mine[0], p.reference(), list(others)))
	}
	if p.Occupied {
		return out
	}
	return append(out, fmt.Sprintf("Without any it is %s.", list(alone)))
}

// silent names the rivals of which the headline has no figure, and why.
func (s *Section) silent() []string {
	p := s.Main
	var out []string
	for _, r := range p.Rivals() {
		for _, d := range []int{0, p.Top()} {
			switch c := r.at(d); {
			case c.Valid():
				continue
			case len(c.Void) > 0:
				out = append(out, fmt.Sprintf("No figure for %s at %s: its windows there are void (%s).", r.Name, number(d, p.Neighbour), c.Void[0]))
			default:
				out = append(out, fmt.Sprintf("No figure for %s at %s: no window was measured.", r.Name, number(d, p.Neighbour)))
			}
		}
	}
	return out
}

// atPoint names the operating point if there are several.
func (s *Section) atPoint() string {
	if len(s.Points) < 2 {
		return ""
	}
	if s.Main.Rate > 0 {
		return fmt.Sprintf(" at %s (%s a second)", s.Main.Name, rate(s.Main.Rate))
	}
	return " at " + s.Main.Name
}

func (s *Section) backgroundHeadline() []string {
	p := s.Main
	var got []string
	for _, r := range p.Rivals() {
		if c := r.at(p.Top()); c.Background.Known() {
			text := fmt.Sprintf("%s CPUs under %s", with(c.Background, cpus), r.Name)
			if c.Harvest.Known() {
				text += fmt.Sprintf(", %s of what was left", percent(c.Harvest.Figure))
			}
			got = append(got, text)
		}
	}
	if len(got) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Background then gets %s.", strings.Join(got, "; "))}
}

// versusHeadline compares ours with each rival at both ends of the ladder.
func (s *Section) versusHeadline() []string {
	p := s.Main
	mine, ok := p.row(ours)
	if !ok {
		return nil
	}
	var out []string
	for _, r := range p.Rivals() {
		if r.Name == ours {
			continue
		}
		idle, full := p.tailRatio(mine.at(0).Cell, r.at(0).Cell), p.tailRatio(mine.at(p.Top()).Cell, r.at(p.Top()).Cell)
		more := mine.at(p.Top()).BackgroundRatio(r.at(p.Top()).Cell)
		if !full.Known() {
			continue
		}
		against := r.Name + ","
		if few := tooFew(full.Seeds); few != "" {
			against = r.Name + few + ":"
		}
		out = append(out, fmt.Sprintf("Against %s temper's %s is %s without background and %s at %s; its background work: %s.",
			against, p.tailName(), change(idle, "higher", "lower"), change(full, "higher", "lower"), number(p.Top(), p.Neighbour), change(more, "more", "less")))
	}
	return out
}

// costHeadline: what an operation costs against the stock kernel.
func (s *Section) costHeadline() []string {
	unit := "time"
	if s.Virtual() {
		unit = "instructions"
	}
	var out []string
	for i := range s.Points {
		p := &s.Points[i]
		var parts []string
		for _, r := range p.Rows {
			base, ok := p.row(stock + strings.TrimPrefix(r.Name, r.Base()))
			if !ok || base.Name == r.Name {
				continue
			}
			if e := r.at(p.Densities[0]).ValueRatio(base.at(p.Densities[0]).Cell, perOp); e.Known() {
				parts = append(parts, fmt.Sprintf("%s under %s", with(e, fold), r.Name))
			}
		}
		if len(parts) > 0 {
			out = append(out, fmt.Sprintf("%s: %s per %s against %s, %s.", capital(nameOr(p.Name, s.Scenario.Name)), unit, s.Scenario.Measures, stock, list(parts)))
		}
	}
	return out
}

// sharesHeadline: how far pods are from what their weights ask for.
func (s *Section) sharesHeadline() []string {
	var parts []string
	for _, r := range s.Main.Rivals() {
		worst, where := stats.None(), ""
		for i := range s.Points {
			p := &s.Points[i]
			for _, d := range p.Densities {
				e, pod := r.Arm.Cell(p.Name, d).ShareError()
				if e.Known() && (!worst.Known() || e.High > worst.High) {
					worst, where = e, fmt.Sprintf("%s at %s", pod, p.Name)
				}
			}
		}
		if worst.Known() {
			parts = append(parts, fmt.Sprintf("%s under %s (pod %s)", with(worst, percent), r.Name, where))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The farthest that a pod's CPU share is from what its cpu.weight asks for within its tier is %s.", list(parts))}
}

// plainHeadline is for scenarios with a single step.
func (s *Section) plainHeadline() []string {
	p := s.Main
	var parts []string
	for _, r := range p.Rivals() {
		if c := r.at(p.Top()); c.Tail.Known() {
			parts = append(parts, fmt.Sprintf("%s under %s", with(c.Tail, micros), r.Name))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s%s is %s.", capital(s.Subject(p)), s.atPoint(), list(parts))}
}

func nameOr(name, other string) string {
	if name == "" {
		return other
	}
	return name
}

// capital begins a sentence.
func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
