// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Comparison is B against A, step by step.
type Comparison struct {
	A     string      `json:"a"`
	B     string      `json:"b"`
	Steps []StepRatio `json:"steps"`
	// LeftOut are the points of one name at which A and B had different loads, and the
	// number of void windows.
	LeftOut []string `json:"left_out,omitempty"`
	// NotSame is what A's and B's machines and scenarios have not in common: figures may
	// differ by it, whatever the change was.
	NotSame []string `json:"not_same,omitempty"`
}

// StepRatio is how many times A's figures B's are at one step, over the seeds
// that both have, and of latencies over the visits. What was not measured is left out.
type StepRatio struct {
	Scenario   string          `json:"scenario"`
	Topology   string          `json:"topology"`
	ArmA       string          `json:"arm_a"`
	ArmB       string          `json:"arm_b"`
	Point      string          `json:"point,omitempty"`
	Density    int             `json:"density"`
	P50        *stats.Estimate `json:"p50,omitempty"`
	P99        *stats.Estimate `json:"p99,omitempty"`
	P999       *stats.Estimate `json:"p999,omitempty"`
	Work       *stats.Estimate `json:"work,omitempty"` // answered, or ended, in a second
	Background *stats.Estimate `json:"background,omitempty"`
	PerOp      *stats.Estimate `json:"per_op,omitempty"`
	// Shares are the pods' where the scenario is about them.
	Shares []ShareRatio `json:"shares,omitempty"`
}

// ShareRatio is a pod's part of what its tier's pods got, under A and under B.
type ShareRatio struct {
	Pod   string         `json:"pod"`
	Tier  string         `json:"tier"`
	Asked float64        `json:"asked"` // by its weight
	A     stats.Estimate `json:"a"`
	B     stats.Estimate `json:"b"`
	Ratio stats.Estimate `json:"ratio"`
}

// Arms compares two arms wherever both are in the same ladder.
func Arms(ladders []*ladder.Ladder, a, b string) (Comparison, error) {
	c := Comparison{A: a, B: b}
	for _, l := range ladders {
		if x, y := l.Arm(a), l.Arm(b); x != nil && y != nil {
			c.add(l, x, l, y)
		}
	}
	if len(c.Steps) == 0 {
		none := "no step that both have; arms there: " + strings.Join(armNames(ladders), ", ")
		return c, fmt.Errorf("compare %s with %s: %s", a, b, strings.Join(append([]string{none}, c.LeftOut...), "; "))
	}
	return c, nil
}

// Directories compares two directories' ladders of the same scenario, topology
// and clock, arm by arm.
func Directories(a, b []*ladder.Ladder) (Comparison, error) {
	c := Comparison{A: a[0].Source, B: b[0].Source}
	if c.A == c.B {
		c.A, c.B = cmp.Or(a[0].Dir, c.A), cmp.Or(b[0].Dir, c.B)
	}
	for _, x := range a {
		for _, y := range b {
			if x.Scenario.Name != y.Scenario.Name || x.Machine.Topology != y.Machine.Topology || x.Machine.Clock != y.Machine.Clock {
				continue
			}
			var arms []string
			for _, arm := range x.Arms {
				before := len(c.Steps)
				if other := y.Arm(arm.Name); other != nil {
					c.add(x, arm, y, other)
				}
				if len(c.Steps) > before {
					arms = append(arms, arm.Name)
				}
			}
			c.tellApart(x, y, arms)
		}
	}
	if len(c.Steps) == 0 {
		none := "no scenario, topology, clock, arm, step and seed that both have"
		return c, fmt.Errorf("compare %s with %s: %s", c.A, c.B, strings.Join(append([]string{none}, c.LeftOut...), "; "))
	}
	return c, nil
}

func armNames(ladders []*ladder.Ladder) []string {
	var out []string
	for _, l := range ladders {
		for _, a := range l.Arms {
			if !slices.Contains(out, a.Name) {
				out = append(out, a.Name)
			}
		}
	}
	return out
}

func (c *Comparison) add(la *ladder.Ladder, a *ladder.Arm, lb *ladder.Ladder, b *ladder.Arm) {
	c.leaveVoidOut("A", la, a)
	c.leaveVoidOut("B", lb, b)
	for _, p := range la.Points() {
		if x, y := la.Rate(p.Name), lb.Rate(p.Name); x != y && len(lb.Densities(p.Name)) > 0 {
			c.leaveOut(fmt.Sprintf("%s of %s is %s a second in A and %s in B", p.Name, la.Scenario.Name, rate(x), rate(y)))
			continue
		}
		for _, d := range la.Densities(p.Name) {
			if !slices.Contains(lb.Densities(p.Name), d) {
				continue
			}
			step := StepRatio{Scenario: la.Scenario.Name, Topology: la.Machine.Topology, ArmA: a.Name, ArmB: b.Name, Point: p.Name, Density: d}
			if step.fill(a.Cell(p.Name, d), b.Cell(p.Name, d), la.Scenario) {
				c.Steps = append(c.Steps, step)
			}
		}
	}
}

// leaveVoidOut says how many of an arm's windows are void.
func (c *Comparison) leaveVoidOut(side string, l *ladder.Ladder, a *ladder.Arm) {
	void := 0
	for _, v := range l.Void {
		if v.Arm == a.Name {
			void++
		}
	}
	if void > 0 {
		c.leaveOut(fmt.Sprintf("%s of %s in %s, %s, void in %s", number(void, "window"), a.Name, l.Scenario.Name, l.Machine.Topology, side))
	}
}

func (c *Comparison) leaveOut(why string) {
	if !slices.Contains(c.LeftOut, why) { // each arm of theirs finds it
		c.LeftOut = append(c.LeftOut, why)
	}
}

// fill estimates what both cells have and says whether that is anything.
func (s *StepRatio) fill(a, b *ladder.Cell, of bench.Scenario) bool {
	known := false
	keep := func(into **stats.Estimate, e stats.Estimate) {
		if e.Known() {
			*into, known = &e, true
		}
	}
	requests := b.Paired(a)
	for q, into := range map[float64]**stats.Estimate{.5: &s.P50, .99: &s.P99, .999: &s.P999} {
		if !notesWaits(of) && stats.Carries(q, requests) {
			keep(into, b.TailRatio(a, q))
		}
	}
	keep(&s.Work, b.Answered(a))
	if s.Density > 0 {
		keep(&s.Background, b.BackgroundRatio(a))
	}
	keep(&s.PerOp, b.ValueRatio(a, perOp))
	if comparesPods(of) {
		s.Shares = shareRatios(a, b)
	}
	return known || len(s.Shares) > 0
}

// comparesPods says whether a scenario is about what pods get by their weights.
func comparesPods(s bench.Scenario) bool { return s.Primary.Kind == "weights" }

func shareRatios(a, b *ladder.Cell) []ShareRatio {
	var out []ShareRatio
	before := a.Shares()
	for _, now := range b.Shares() {
		i := slices.IndexFunc(before, func(s ladder.Share) bool { return s.Pod.Name == now.Pod.Name })
		if i < 0 {
			continue
		}
		if e := now.Ratio(before[i]); e.Known() {
			out = append(out, ShareRatio{Pod: now.Pod.Name, Tier: now.Pod.Tier, Asked: now.Asked, A: before[i].Got, B: now.Got, Ratio: e})
		}
	}
	return out
}

// Text writes the comparison as a table per scenario. A ratio whose interval is one of
// 95 % and leaves out 1 has a mark.
func (c Comparison) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s as a multiple of %s: below 1 is less; * where the 95 %% interval leaves out 1\n", c.B, c.A)
	for _, why := range c.LeftOut {
		fmt.Fprintf(&b, "Left out: %s.\n", why)
	}
	for i := 0; i < len(c.Steps); {
		first := c.Steps[i]
		t := Table{Head: []string{"step", "density", "p50", "p99", "p99.9", "work a second", "background", "per op", "seeds"}}
		shares := Table{Head: []string{"step", "density", "pod", "tier", "asked for", "A got", "B got", "B over A", "seeds"}}
		for ; i < len(c.Steps) && c.Steps[i].table() == first.table(); i++ {
			if c.Steps[i].seeds() > 0 {
				t.Rows = append(t.Rows, c.Steps[i].row())
			}
			shares.Rows = append(shares.Rows, c.Steps[i].shareRows()...)
		}
		if len(t.Rows) > 0 {
			fmt.Fprintln(&b)
			t.dense().text(&b, first.table())
		}
		if len(shares.Rows) > 0 {
			fmt.Fprintln(&b)
			shares.text(&b, first.table()+": CPU shares; A is "+c.A+", B is "+c.B)
		}
	}
	for _, note := range slices.DeleteFunc([]string{c.fewSeeds(), c.notSame()}, func(s string) bool { return s == "" }) {
		fmt.Fprintf(&b, "\n%s\n", wrap(note, "", ""))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fewSeeds says why figures have no mark; "" where all may have one.
func (c Comparison) fewSeeds() string {
	fewest, most := math.MaxInt, 0
	for _, s := range c.Steps {
		for _, e := range s.estimates() {
			if e != nil {
				fewest, most = min(fewest, e.Seeds), max(most, e.Seeds)
			}
		}
	}
	switch {
	case most == 1:
		return "One seed: there are no intervals, and nothing is shown to differ."
	case fewest < fewSeeds:
		return fmt.Sprintf("Figures of fewer than %d seeds have no mark: their interval is the range of what the seeds can be drawn to, no 95%s%% one.", fewSeeds, nbsp)
	}
	return ""
}

// table names the table that a step stands in.
func (s StepRatio) table() string {
	arm := s.ArmB
	if s.ArmA != s.ArmB {
		arm = s.ArmB + " against " + s.ArmA
	}
	return fmt.Sprintf("%s, %s, %s", s.Scenario, s.Topology, arm)
}

func (s StepRatio) estimates() []*stats.Estimate {
	return []*stats.Estimate{s.P50, s.P99, s.P999, s.Work, s.Background, s.PerOp}
}

// seeds is how many are behind the figure that has most.
func (s StepRatio) seeds() int {
	most := 0
	for _, e := range s.estimates() {
		if e != nil {
			most = max(most, e.Seeds)
		}
	}
	return most
}

func (s StepRatio) row() []string {
	out := []string{nameOr(s.Point, "step"), strconv.Itoa(s.Density)}
	for _, e := range s.estimates() {
		if e == nil {
			out = append(out, none)
			continue
		}
		out = append(out, marked(*e))
	}
	return append(out, strconv.Itoa(s.seeds()))
}

// marked has a mark where the interval is one of 95 % and leaves out 1.
func marked(e stats.Estimate) string {
	if e.Seeds >= fewSeeds && e.Excludes(1) {
		return with(e, fold) + "*"
	}
	return with(e, fold) + " "
}

func (s StepRatio) shareRows() [][]string {
	var out [][]string
	for _, share := range s.Shares {
		out = append(out, []string{
			nameOr(s.Point, "step"), strconv.Itoa(s.Density), share.Pod, share.Tier, percent(share.Asked),
			with(share.A, percent), with(share.B, percent), marked(share.Ratio), strconv.Itoa(share.Ratio.Seeds),
		})
	}
	return out
}
