// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"path/filepath"
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
	before := climb(5, "eevdf", "temper")
	after := slower(climb(5, "temper", "static"))
	after.Scenario.Densities = []int{0, 4} // a shorter ladder: what both have is compared
	c, err := Directories(ladders(t, "before", before), ladders(t, "after", after))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Steps) != 4 {
		t.Fatalf("%d steps, want 2 points of 2 densities: %+v", len(c.Steps), c.Steps)
	}
	for _, s := range c.Steps {
		tail := s.P99
		if s.Point == ladder.Null { // 500 requests
			tail = s.P50
		}
		if s.ArmA != "temper" || tail == nil || tail.Low < 1.19 || tail.High > 1.21 || (s.P99 != nil) != (s.Point != ladder.Null) || s.P999 != nil || (s.Background != nil) != (s.Density > 0) {
			t.Errorf("%+v with tail %+v", s, tail)
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

func compareText(t *testing.T, c Comparison, err error) string {
	t.Helper()
	var text strings.Builder
	if err == nil {
		err = c.Text(&text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// Four seeds are all a fifth slower, and so is what they can be drawn to: no interval of 95 %.
func TestFewSeedsHaveNoMark(t *testing.T) {
	const figure, few = "1.20× (1.20–1.20)", "fewer than 5 seeds have no mark"
	for _, tc := range []struct {
		before, after int
		marked        bool
		says          string
	}{
		{5, 5, true, ""},
		{4, 4, false, few},
		{8, 2, false, few}, // those that both have
		{1, 8, false, "One seed: there are no intervals"},
	} {
		c, err := Directories(ladders(t, "before", short(tc.before, "temper")), ladders(t, "after", slower(short(tc.after, "temper"))))
		text := compareText(t, c, err)
		_, tables, _ := strings.Cut(text, "\n\n")
		_, below, _ := strings.Cut(tables, "\n\n  ")
		if got := strings.Contains(tables, figure+"*"); got != tc.marked {
			t.Errorf("%d and %d seeds: marked %v, want %v:\n%s", tc.before, tc.after, got, tc.marked, text)
		}
		if tc.says == "" && strings.Contains(text, "seeds have no mark") || !strings.Contains(plainText(below+tables), tc.says) {
			t.Errorf("%d and %d seeds: want %q below the table:\n%s", tc.before, tc.after, tc.says, text)
		}
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		lacks(t, string(data), `"seeds":`)
	}
}

// What differs may be of the machine or of what it had to do, not of the change.
func TestWhatElseDiffersBetweenDirectoriesIsSaid(t *testing.T) {
	before, after := climb(2, "eevdf", "eevdf-tuned", "temper"), climb(2, "temper", "eevdf-tuned", "eevdf")
	same, err := Directories(ladders(t, "before", before), ladders(t, "after", after))
	if text := compareText(t, same, err); strings.Contains(text, "Not the same") {
		t.Errorf("arms in another order are no difference:\n%s", text)
	}
	after.Scenario.Title = "other words"
	after.Scenario.Primary.Threads, after.Scenario.Load.ValueBytes, after.Scenario.Primary.LimitMilliCPU = 4, 4000, 1500
	after.Scenario.Points = after.Scenario.Points[1:]
	after.Spoil = func(rec *bench.Record) {
		m := &rec.Machine
		m.PluginSHA256, m.Emulator = strings.Repeat("0123456789abcdef", 4), "QEMU 10.1.0"
		m.EmulatorArgs = append(slices.Clone(m.EmulatorArgs), "-m", "2048M", "-append", m.Cmdline, "-netdev", "user,hostfwd=tcp:127.0.0.1:40001-:7000")
		m.Cmdline += " nosmt"
	}
	c, err := Directories(ladders(t, "before", before), ladders(t, "after", after))
	text := compareText(t, c, err)
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(plainText(text), "Not the same: ")
	if !found {
		t.Fatalf("nothing differs in:\n%s", text)
	}
	for _, want := range []string{
		`clock plugin was "invented", is "0123456789ab"`, `emulator was "QEMU 10.0.2", is "QEMU 10.1.0"`,
		`emulator's command line had "", has "-m 2048M -netdev user,hostfwd=tcp:127.0.0.1-:7000"`, `kernel's command line had "", has "nosmt"`,
		"memcached-ladder's primary.threads was 2, is 4", "memcached-ladder's load.value_bytes was 100, is 4000",
		"memcached-ladder's primary.limit_millicpu was 0, is 1500", "memcached-ladder's points was null and 60 %, is 60 %",
	} {
		lacks(t, below, want)
		quoted, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		lacks(t, string(data), `"not_same":[`, strings.Trim(string(quoted), `"`))
	}
	for _, alike := range []string{"title", "-append", "-seed", "densities", "rate"} {
		if strings.Contains(below, alike) {
			t.Errorf("%q is said to differ in:\n%s", alike, below)
		}
	}
}

// A line of differences stays one that is read: packages come in dozens.
func TestManyDifferencesAreCounted(t *testing.T) {
	after := short(1, "temper")
	after.Spoil = func(rec *bench.Record) {
		rec.Machine.Packages = map[string]string{"memcached": "1.0-1"}
		for name := range strings.SplitSeq("abcdefghijkl", "") {
			rec.Machine.Packages["lib"+name] = "2"
		}
	}
	c, err := Directories(ladders(t, "before", short(1, "temper")), ladders(t, "after", after))
	text := plainText(compareText(t, c, err))
	lacks(t, text, `package liba was "", is "2"`, "and 4 more")
	if strings.Contains(text, "libl") {
		t.Errorf("all of them are in:\n%s", text)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, string(data), "libl")
}

// "sc as a multiple of sc" says nothing.
func TestDirectoriesOfOneNameAreToldApart(t *testing.T) {
	root := t.TempDir()
	x, y := filepath.Join(root, "x", "sc"), filepath.Join(root, "y", "sc")
	var sides [2][]*ladder.Ladder
	for i, dir := range []string{x, y} {
		if err := short(1, "temper").Write(dir); err != nil {
			t.Fatal(err)
		}
		var err error
		if sides[i], err = ladder.Read(dir); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Directories(sides[0], sides[1])
	lacks(t, compareText(t, c, err), y+" as a multiple of "+x+": ")
}

// What weights are for is compared: who got how much of its tier.
func TestSharesAreCompared(t *testing.T) {
	c := kinds()["weights"]
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		a := 25 * time.Millisecond
		if arm == "temper" {
			a = 20*time.Millisecond + time.Duration(seed)*time.Microsecond
		}
		for _, p := range []bench.Pod{{Name: "a", Weight: 1, CPUTime: a}, {Name: "b", Weight: 3, CPUTime: 100*time.Millisecond - a}} {
			p.Tier, p.Threads = "standard", 3
			s.Pods = append(s.Pods, p)
		}
		return s
	}
	arms, err := Arms(ladders(t, "x", c), "eevdf", "temper")
	text := plainText(compareText(t, arms, err))
	lacks(t, text, "temper against eevdf: CPU shares; A is eevdf, B is temper", "1:3 0 a standard 25.0 % 25.0 % (25.0–25.0) 20.0 % (20.0–20.0) 0.80× (0.80–0.80)* 5", "75.0 % (75.0–75.0) 80.0 % (80.0–80.0) 1.07× (1.07–1.07)* 5")
	data, err := json.Marshal(arms)
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, string(data), `"shares":[{"pod":"a","tier":"standard","asked":0.25,`)
	c.Scenario.Primary.Kind = "wakeup" // whose pods are there for something else
	arms, err = Arms(ladders(t, "x", c), "eevdf", "temper")
	if text := compareText(t, arms, err); strings.Contains(text, "shares") {
		t.Errorf("shares of pods that no weights tell apart:\n%s", text)
	}
}
