// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
	"github.com/temper-sched/temper/internal/bench/stats"
)

func campaign() invented.Campaign {
	return invented.Campaign{Scenario: invented.Ladder("memcached"), Arms: []string{"temper", "eevdf"}, Seeds: 3, Jitter: .002, Shape: invented.Typical}
}

func read(t *testing.T, c invented.Campaign) *Ladder {
	t.Helper()
	dir := t.TempDir()
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	ladders, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(ladders) != 1 {
		t.Fatalf("%d ladders of one scenario", len(ladders))
	}
	return ladders[0]
}

func TestCellsHoldAllVisitsOfAStep(t *testing.T) {
	l := read(t, campaign())
	if len(l.Void) > 0 {
		t.Fatalf("void: %+v", l.Void[0])
	}
	if len(l.Arms) != 2 || l.Arms[0].Name != "eevdf" || l.Windows != 2*3*2*11 || len(l.Seeds) != 3 {
		t.Errorf("%d arms, %d windows, seeds %v", len(l.Arms), l.Windows, l.Seeds)
	}
	if got := l.Densities("60 %"); len(got) != 6 || got[5] != 16 {
		t.Errorf("densities %v", got)
	}
	if got := l.Main().Name; got != "60 %" {
		t.Errorf("main point %q", got)
	}
	full := l.Arm("temper").Cell("60 %", 8)
	if full.Windows != 6 || full.Latency().Total() != 6*3000 {
		t.Errorf("%d windows, %d requests", full.Windows, full.Latency().Total())
	}
	up, down, ok := full.Visits()
	if !ok || up.Total() != 9000 || down.Total() != 9000 {
		t.Errorf("visits of %d and %d requests, %v", up.Total(), down.Total(), ok)
	}
	if _, _, ok := l.Arm("temper").Cell("60 %", 16).Visits(); ok {
		t.Error("the top is visited once")
	}
	if e := full.BackgroundCPUs(); math.Abs(e.Figure-2.55) > .1 || e.Seeds != 3 || e.Low > e.Figure || e.High < e.Figure {
		t.Errorf("background %+v", e)
	}
	if e := full.Harvest(); math.Abs(e.Figure-2.55/2.6) > .04 {
		t.Errorf("harvest %+v", e)
	}
	if e := full.TailRatio(l.Arm("temper").Cell("60 %", 0), .99); math.Abs(e.Figure-1.04) > .01 {
		t.Errorf("growth %+v", e)
	}
	if got := full.Achieved(l.Scenario.Load.Window); math.Abs(got.Figure-30000) > 1 || got.Low > got.Figure || got.High < got.Figure {
		t.Errorf("%v answers a second", got)
	}
	if c := l.Arm("static").Cell("60 %", 0); c.Valid() || c.Tail(.99).Known() || c.Harvest().Known() {
		t.Error("an arm that did not run has figures")
	}
}

func TestVoidWindowsEnterNoFigure(t *testing.T) {
	c := campaign()
	c.Spoil = func(rec *bench.Record) {
		if rec.Arm.Name == "temper" && rec.Seed == 2 && rec.Window.Step.Point == "null" && rec.Window.Step.Density == 4 {
			rec.Window.Sched[1].State = "disabled"
		}
	}
	l := read(t, c)
	cell := l.Arm("temper").Cell("null", 4)
	if len(l.Void) != 2 || cell.Windows != 4 || cell.Voids != 2 || !strings.Contains(l.Void[0].ID, "seed=2/step=3") {
		t.Errorf("%d windows, void %+v", cell.Windows, l.Void)
	}
	if n := cell.Tried(); n != 3 {
		t.Errorf("%d seeds, that which is void among them", n)
	}
}

// The way down has other arrivals: the top, which has none, is not set against them.
func TestTailRatioPairsVisits(t *testing.T) {
	at := func(d time.Duration) stats.BySeed {
		return stats.BySeed{1: {{Duration: d, Count: 100}}, 2: {{Duration: d, Count: 100}}}
	}
	foot := &Cell{visits: map[int]stats.BySeed{0: at(time.Millisecond), 1: at(9 * time.Millisecond)}}
	top := &Cell{visits: map[int]stats.BySeed{0: at(2 * time.Millisecond)}}
	if e := top.TailRatio(foot, .99); e.Figure != 2 || e.Seeds != 2 {
		t.Errorf("%+v, want twice the foot on the way up", e)
	}
	if n := top.Paired(foot); n != 200 {
		t.Errorf("%d requests, want those of one visit", n)
	}
	delete(top.visits[0], 2)
	if e := top.TailRatio(foot, .99); e.Figure != 2 || e.Seeds != 1 {
		t.Errorf("%+v, want the seed that both have", e)
	}
	if n := top.Paired(foot); n != 100 {
		t.Errorf("%d requests, want those of the seed that both have", n)
	}
}

// Nor is what was answered there: the way down has half of it here.
func TestAnsweredPairsVisits(t *testing.T) {
	c := invented.Campaign{
		Scenario: invented.Own("bursty", "burst", nil, 0, 8, 0), Arms: []string{"temper"}, Seeds: 3,
		Shape: func(_ string, _ uint64, step bench.Step) invented.Shape {
			s := invented.Shape{Critical: 1, Background: 1, Ops: 1000, Achieved: 500}
			if step.Index == 2 {
				s.Achieved = 250
			}
			return s
		},
	}
	a := read(t, c).Arm("temper")
	if e := a.Cell("", 8).Answered(a.Cell("", 0)); math.Abs(e.Figure-1) > 1e-9 || e.Seeds != 3 {
		t.Errorf("%+v, want what the foot answered on the way up", e)
	}
}

// Nothing depends on background here, so that every ratio is 1 whatever was visited how
// often and whichever window is void.
func TestRatiosAreOfEqualTime(t *testing.T) {
	c := invented.Campaign{
		Scenario: invented.Own("bursty", "burst", nil, 0, 4, 8, 4, 0), Arms: []string{"temper", "eevdf"}, Seeds: 3,
		Shape: func(string, uint64, bench.Step) invented.Shape {
			return invented.Shape{Critical: 1, Background: 1, Ops: 1000, Achieved: 500, Values: map[string]float64{"ns_per_op": 1000}}
		},
		Spoil: func(rec *bench.Record) {
			if rec.Arm.Name == "eevdf" && rec.Seed == 2 && rec.Window.Step.Index == 3 {
				rec.Window.Primary.Wrong = 1
			}
		},
	}
	l := read(t, c)
	if len(l.Void) != 1 {
		t.Fatalf("void: %+v", l.Void)
	}
	mine, theirs := l.Arm("temper"), l.Arm("eevdf")
	for name, cells := range map[string][2]*Cell{
		"top and foot":  {mine.Cell("", 8), mine.Cell("", 0)},
		"a window less": {theirs.Cell("", 4), mine.Cell("", 4)},
	} {
		a, b := cells[0], cells[1]
		for of, e := range map[string]stats.Estimate{
			"background": a.BackgroundRatio(b), "answered": a.Answered(b), "value": a.ValueRatio(b, "ns_per_op"),
		} {
			if math.Abs(e.Low-1) > 1e-9 || math.Abs(e.High-1) > 1e-9 || e.Seeds != 3 {
				t.Errorf("%s: %s %+v, want 1", name, of, e)
			}
		}
	}
}

// A record of another program may name a point where its scenario has none.
func TestPointsHaveWindows(t *testing.T) {
	c := campaign()
	c.Seeds, c.Scenario.Points = 1, nil
	c.Spoil = func(rec *bench.Record) { rec.Window.Step.Point = "elsewhere" }
	if points := read(t, c).Points(); len(points) > 0 {
		t.Errorf("points %+v, none of which has a window", points)
	}
}

// Beyond what the server can take all windows are void: no headline is made of them.
func TestMainHasValidWindows(t *testing.T) {
	c := campaign()
	c.Spoil = func(rec *bench.Record) {
		if rec.Window.Step.Point == "60 %" {
			rec.Window.Primary.Wrong = 1
		}
	}
	if got := read(t, c).Main().Name; got != "null" {
		t.Errorf("main point %q, whose windows are all void", got)
	}
}

// A line that was edited is no void window, of which no figure is made: no figure is made of
// any.
func TestEditedLinesAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := campaign().Write(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, bench.RecordFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := bytes.Replace(text, []byte(`"system_ns":0`), []byte(`"system_ns":1`), 1)
	if bytes.Equal(text, edited) {
		t.Fatal("nothing to edit")
	}
	if err := os.WriteFile(path, edited, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); !errors.Is(err, bench.ErrUnsound) || !strings.Contains(err.Error(), "line 1: its checksum") {
		t.Errorf("error %v", err)
	}
}

// Nobody has more to do than who is asked again at once; a node agent that is not, rests.
func TestMainHasTheMostToDo(t *testing.T) {
	for want, scenario := range map[string]bench.Scenario{"saturated": invented.Limited("requests"), "pods": invented.Agent()} {
		scenario.Points = slices.Clone(scenario.Points)
		slices.Reverse(scenario.Points)
		c := invented.Campaign{Scenario: scenario, Arms: []string{"temper"}, Seeds: 1, Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
			s := invented.Typical(arm, seed, step)
			if s.Values = invented.AtAgent(); want == "saturated" {
				invented.AtLimit(arm, &s)
			}
			return s
		}}
		if l := read(t, c); l.Main().Name != want || len(l.Void) > 0 {
			t.Errorf("%s: main point %q; void %v", scenario.Name, l.Main().Name, l.Void)
		}
	}
}

// What is counted twice, or is of another campaign, would be in figures.
func TestRepeatedAndMixedWindowsAreRefused(t *testing.T) {
	mine := campaign()
	mine.Seeds = 1
	other := mine
	other.Spoil = func(rec *bench.Record) { rec.Campaign, rec.Seed = "other", 7 }
	file := func(c invented.Campaign) []byte {
		dir := t.TempDir()
		if err := c.Write(dir); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, bench.RecordFile))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := file(mine)
	first, _, _ := bytes.Cut(text, []byte("\n"))
	for want, more := range map[string][]byte{
		"line 45: window memcached-ladder/1s4c1t/temper/seed=1/step=0/point=null/spinners=0 is there twice": first,
		"is of campaign other, those before it of invented":                                                 file(other),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, bench.RecordFile), slices.Concat(text, more), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); !errors.Is(err, bench.ErrUnsound) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestWindowsThatWerePlannedAreMissed(t *testing.T) {
	c := campaign()
	records, err := c.Records()
	if err != nil {
		t.Fatal(err)
	}
	fold := NewFold("x")
	for i, rec := range records {
		rec.Plan = bench.Plan{Arms: []string{"eevdf", "temper"}, SeedFirst: 1, Seeds: 2}
		if rec.Seed == 3 { // resumed with more of both
			rec.Plan = bench.Plan{Arms: []string{"eevdf", "temper", "static"}, SeedFirst: 1, Seeds: 3}
		}
		if rec.Arm.Name == "temper" && rec.Seed == 2 || rec.Arm.Name == "eevdf" && i == len(records)-1 {
			continue
		}
		if err := fold.Add(rec); err != nil {
			t.Fatal(err)
		}
	}
	ladders, err := fold.Ladders()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ladders[0].Lacks(), []Lacking{{"eevdf", 2, 3}, {"temper", 2, 3}, {"static", 0, 3}}; !slices.Equal(got, want) {
		t.Errorf("lacking %v, want %v", got, want)
	}
}

// A topology that is missing whole has no ladder that could lack anything.
func TestATopologyThatWasPlannedIsMissed(t *testing.T) {
	fold := NewFold("x")
	for _, scenario := range []string{"memcached", "redis"} {
		c := campaign()
		c.Scenario, c.Seeds = invented.Ladder(scenario), 1
		records, err := c.Records()
		if err != nil {
			t.Fatal(err)
		}
		for i, rec := range records {
			rec.Plan = bench.Plan{Arms: c.Arms, SeedFirst: 1, Seeds: 1, Topologies: []string{"1s4c1t", "1s8c1t", "1s2c2t"}}
			if scenario == "redis" && i%2 == 0 { // it was measured there
				rec.Machine.Topology = "1s8c1t"
			}
			if err := fold.Add(rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	ladders, err := fold.Ladders()
	if err != nil || len(ladders) != 3 {
		t.Fatalf("%d ladders, %v", len(ladders), err)
	}
	for _, l := range ladders {
		want := []string{"1s2c2t"}
		if l.Scenario.Primary.Kind == "memcached" {
			want = []string{"1s8c1t", "1s2c2t"}
		}
		if !slices.Equal(l.Absent, want) {
			t.Errorf("%s on %s: absent %v, want %v", l.Scenario.Name, l.Machine.Topology, l.Absent, want)
		}
	}
}

func TestClocksAndTopologiesNeverShareALadder(t *testing.T) {
	fold := NewFold("x")
	records, err := campaign().Records()
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(*bench.Record){
		func(*bench.Record) {}, func(*bench.Record) {},
		func(r *bench.Record) { r.Machine.Clock = bench.ClockHost },
		func(r *bench.Record) { r.Machine.Topology = "1s8c1t" },
		func(r *bench.Record) { r.Scenario.Load.Conns++ },
	} {
		change(records[i])
		if err := fold.Add(records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if ladders, err := fold.Ladders(); err != nil || len(ladders) != 4 {
		t.Errorf("%d ladders, %v", len(ladders), err)
	}
	if _, err := NewFold("x").Ladders(); err == nil {
		t.Error("no records, and no error")
	}
}

func TestSharesWithinATier(t *testing.T) {
	c := invented.Campaign{
		Scenario: invented.Own("weights", "share", []string{"1:3"}, 0), Arms: []string{"temper"}, Seeds: 4,
		Shape: func(_ string, seed uint64, _ bench.Step) invented.Shape {
			extra := time.Duration(seed) * time.Millisecond
			return invented.Shape{Critical: 3, Ops: 1, Pods: []bench.Pod{
				{Name: "a", Tier: "standard", Weight: 100, CPUTime: 100*time.Millisecond + extra},
				{Name: "b", Tier: "standard", Weight: 300, CPUTime: 300*time.Millisecond - extra},
				{Name: "alone", Tier: "critical", Weight: 7, CPUTime: time.Millisecond},
			}}
		},
	}
	cell := read(t, c).Arm("temper").Cell("1:3", 0)
	if n := len(cell.Shares()); n != 2 {
		t.Fatalf("%d shares; a pod alone in its tier has none to compare", n)
	}
	// Seeds 1 to 4: a got 102.5 ms of 400 where 100 were asked for.
	off, pod := cell.ShareError()
	if pod != "a" || math.Abs(off.Figure-.025) > 1e-9 || off.Low < .0099 || off.High > .0401 {
		t.Errorf("pod %s off by %+v", pod, off)
	}
}

func TestNoTwoArmsLookAlike(t *testing.T) {
	c := campaign()
	c.Seeds, c.Scenario.Densities = 1, []int{0}
	c.Arms = []string{"temper:landing:no-probe", "exec:b", "exec:a", "temper:again:no-probe", "temper", "temper:landing"}
	seen := map[int]string{}
	for _, a := range read(t, c).Arms {
		if other, ok := seen[a.Style]; ok {
			t.Errorf("%s looks like %s", a.Name, other)
		}
		seen[a.Style] = a.Name
	}
	if len(seen) != len(c.Arms) {
		t.Errorf("arms %v", seen)
	}
}

// An arm without a place of its own would have other looks in other reports.
func TestChartedArmsAreStyled(t *testing.T) {
	names := []string{"exec:a"}
	for _, a := range bench.Arms() {
		names = append(names, a.Name)
	}
	for _, m := range bench.Modifiers() {
		names = append(names, cmp.Or(m.Base, "temper")+":"+m.Name)
	}
	arms, err := bench.ParseArms(names)
	if err != nil {
		t.Fatal(err)
	}
	for _, arm := range arms {
		if a := (&Arm{Arm: arm}); !a.Control() && !slices.Contains(styled, kind(arm)) {
			t.Errorf("%s is charted and has no style", arm.Name)
		}
	}
}

func TestFactsSayOnceWhatIsTheSame(t *testing.T) {
	l := read(t, campaign())
	facts := map[string][]string{}
	for _, f := range l.Facts.List() {
		facts[f.Name] = f.Values
	}
	if got := facts["kernel"]; len(got) != 1 || got[0] != "7.2.13-invented" {
		t.Errorf("kernel %q", got)
	}
	if got := facts["emulator arguments"]; len(got) != 1 || !strings.Contains(got[0], "-seed SEED") {
		t.Errorf("emulator arguments %q", got)
	}
}

// Whoever stands in the directory makes the same report as whoever names it.
func TestTheDirectoryHasItsNameWhereOneStandsInIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "2026-01-01-here")
	if err := campaign().Write(dir); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, path := range []string{".", "", "../2026-01-01-here/", dir} {
		ladders, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := ladders[0].Source; got != "2026-01-01-here" {
			t.Errorf("read %q: source %q", path, got)
		}
	}
}
