// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
	"github.com/temper-sched/temper/internal/bench/ladder"
)

func ladders(t *testing.T, source string, c invented.Campaign) []*ladder.Ladder {
	t.Helper()
	records, err := c.Records()
	if err != nil {
		t.Fatal(err)
	}
	fold := ladder.NewFold(source)
	for _, rec := range records {
		if err := fold.Add(rec); err != nil {
			t.Fatal(err)
		}
	}
	out, err := fold.Ladders()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// slower is the campaign with every latency a fifth longer.
func slower(c invented.Campaign) invented.Campaign {
	shape := c.Shape
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := shape(arm, seed, step)
		s.P50, s.P99 = s.P50*6/5, s.P99*6/5
		return s
	}
	return c
}

func TestDirectoriesAreComparedByArmAndStep(t *testing.T) {
	before := climb(3, "eevdf", "temper")
	after := slower(climb(3, "temper", "static"))
	after.Scenario.Densities = []int{0, 4} // a shorter ladder: what both have is compared
	c, err := Directories(ladders(t, "before", before), ladders(t, "after", after))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Steps) != 4 {
		t.Fatalf("%d steps, want 2 points of 2 densities: %+v", len(c.Steps), c.Steps)
	}
	for _, s := range c.Steps {
		if s.ArmA != "temper" || s.P99 == nil || s.P99.Low < 1.19 || s.P99.High > 1.21 || s.P999 != nil || (s.Background != nil) != (s.Density > 0) {
			t.Errorf("%+v with p99 %+v", s, s.P99)
		}
	}
	var text strings.Builder
	if err := c.Text(&text); err != nil {
		t.Fatal(err)
	}
	lacks(t, text.String(), "after as a multiple of before", "memcached-ladder, 1s4c1t, temper\n", "1.20× (1.20–1.20)*", "null", "60 %")

	other := climb(1, "temper")
	other.Scenario.Topology = "1s8c1t"
	if _, err := Directories(ladders(t, "before", before), ladders(t, "other", other)); err == nil {
		t.Error("topologies were compared with each other")
	}
}

// The way down has other arrivals: a ladder without one is held against the way up, and
// a p99.9 needs its requests there.
func TestVisitsAreComparedInPairs(t *testing.T) {
	before := climb(1, "temper")
	before.Scenario.Points = before.Scenario.Points[1:]
	before.Scenario.Load.Window = 2 * time.Second // 60,000 requests
	after := before
	after.Seeds, after.Scenario.Densities = 2, []int{0, 4}
	before.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		if step.Index > 2 {
			s.P50, s.P99 = 3*s.P50, 3*s.P99
		}
		return s
	}
	before.Jitter, after.Jitter = 0, 0
	c, err := Directories(ladders(t, "before", before), ladders(t, "after", after))
	if err != nil || len(c.Steps) != 2 {
		t.Fatalf("%v, steps %+v", err, c.Steps)
	}
	for _, s := range c.Steps {
		if s.P99 == nil || s.P99.Figure != 1 || s.P999 != nil {
			t.Errorf("%d spinners: p99 %+v, p99.9 %+v: want 1, and none of 60,000 pairs", s.Density, s.P99, s.P999)
		}
	}
}

// A share of another maximum is another load under the same name.
func TestPointsOfOtherLoadsAreNotCompared(t *testing.T) {
	before, after := climb(2, "temper"), climb(2, "temper")
	points := slices.Clone(after.Scenario.Points)
	points[1].Share *= 1.5
	after.Scenario.Points = points
	c, err := Directories(ladders(t, "before", before), ladders(t, "after", after))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Steps) != 3 || len(c.LeftOut) != 1 {
		t.Errorf("steps %+v, left out %q: want one point of two", c.Steps, c.LeftOut)
	}
	var text strings.Builder
	if err := c.Text(&text); err != nil {
		t.Fatal(err)
	}
	lacks(t, text.String(), "Left out: "+points[1].Name+" of memcached-ladder is ")
}

func TestArmsOfOneDirectory(t *testing.T) {
	l := ladders(t, "x", climb(2, "eevdf-tuned", "temper"))
	c, err := Arms(l, "eevdf-tuned", "temper")
	if err != nil || len(c.Steps) != 6 {
		t.Fatalf("%d steps, %v", len(c.Steps), err)
	}
	if top := c.Steps[5]; top.Density != 16 || top.P99.High > .9 {
		t.Errorf("%+v, p99 %+v", top, top.P99)
	}
	if _, err := Arms(l, "eevdf", "temper"); err == nil || !strings.Contains(err.Error(), "arms there: eevdf-tuned, temper") {
		t.Errorf("an arm that is not there: %v", err)
	}
}

// A figure of fewer windows than there are says so.
func TestVoidWindowsTakeNoPartAndAreCounted(t *testing.T) {
	c := climb(2, "eevdf-tuned", "temper")
	c.Spoil = func(rec *bench.Record) {
		if rec.Arm.Name == "temper" && rec.Window.Step.Index < 3 {
			rec.Window.Primary.Wrong = 1
		}
	}
	with, without := ladders(t, "with", c), ladders(t, "without", climb(2, "eevdf-tuned", "temper"))
	arms, err := Arms(with, "eevdf-tuned", "temper")
	if want := []string{"6 windows of temper in memcached-ladder, 1s4c1t, void in B"}; err != nil || !slices.Equal(arms.LeftOut, want) {
		t.Errorf("left out %q, want %q; %v", arms.LeftOut, want, err)
	}
	var text strings.Builder
	if err := arms.Text(&text); err != nil {
		t.Fatal(err)
	}
	lacks(t, text.String(), "Left out: 6 windows of temper in ")
	dirs, err := Directories(with, without)
	if want := []string{"6 windows of temper in memcached-ladder, 1s4c1t, void in A"}; err != nil || !slices.Equal(dirs.LeftOut, want) {
		t.Errorf("left out %q, want %q; %v", dirs.LeftOut, want, err)
	}
}
