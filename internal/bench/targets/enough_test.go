// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// A step whose newest windows are void is not known, whatever an older engine gave.
func TestAVoidStepIsOpen(t *testing.T) {
	root := t.TempDir()
	for date, spoil := range map[string]func(*bench.Record){
		"2026-01-01": nil,
		"2026-01-02": func(r *bench.Record) {
			if r.Arm.Name == ours && r.Window.Step.Density > 4 {
				r.Window.Primary.Wrong = 1
			}
		},
	} {
		c := invented.Campaign{Scenario: short("chain"), Arms: []string{ours}, Seeds: 5, Jitter: .002, Shape: invented.Typical, Spoil: spoil}
		if err := c.Write(filepath.Join(root, date+"-chain")); err != nil {
			t.Fatal(err)
		}
	}
	target := all(t, root)["T10"]
	if target.Met != nil || !strings.Contains(target.Note, "all windows are void at chain-ladder") {
		t.Errorf("met %v, note %q", target.Met, target.Note)
	}
	var text strings.Builder
	if err := Text(&text, []Target{target}, nil); err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{text.String(), Markdown([]Target{target})} {
		if !strings.Contains(said, "void at chain-ladder") || strings.Contains(said, "no record yet") {
			t.Errorf("it says %q", said)
		}
	}
}

// The newest windows at a limit are void: an older engine's meet nothing for them.
func TestAVoidLimitIsOpen(t *testing.T) {
	root := t.TempDir()
	for date, spoil := range map[string]func(*bench.Record){
		"2026-01-01": nil,
		"2026-01-02": func(r *bench.Record) {
			if r.Arm.Name == ours {
				r.Window.IdleBefore = 0
			}
		},
	} {
		c := invented.Campaign{
			Scenario: invented.Limited("requests"), Arms: []string{stock, shorter, ours}, Seeds: 5, Jitter: .002, Spoil: spoil,
			Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
				s := invented.Typical(arm, seed, step)
				invented.AtLimit(arm, &s)
				return s
			},
		}
		if err := c.Write(filepath.Join(root, date+"-limit")); err != nil {
			t.Fatal(err)
		}
	}
	got := all(t, root)
	for _, id := range []string{"T8", "T9"} {
		if target := got[id]; target.Met != nil || !strings.Contains(target.Note, "all windows are void") {
			t.Errorf("%s: met %v, note %q", id, target.Met, target.Note)
		}
	}
}

// What is left of a campaign meets nothing: the windows that are not there may have been
// the worst of it. Nor do few seeds.
func TestRemnantsMeetNothing(t *testing.T) {
	for name, c := range map[string]struct {
		seeds, planned, void int
		topology             string // planned beside that which is there
		want                 string // met, or the reason why not
	}{
		"whole":          {6, 6, 0, "", "met"},
		"seeds deleted":  {6, 8, 0, "", "of temper only 6 of 8 planned seeds are there"},
		"all of 8 CPUs":  {6, 6, 0, "1s8c1t", "1s8c1t was planned, and no window of pipe is there"},
		"half of it":     {8, 8, 3, "", "3 of 8 windows are void"},
		"one of many":    {12, 12, 1, "", "met"},
		"of three seeds": {3, 3, 0, "", "3 seeds are too few"},
		"of two seeds":   {2, 2, 0, "", "2 seeds are too few"},
	} {
		root := t.TempDir()
		campaign := invented.Campaign{
			Scenario: invented.Own("pipe", "hand-over", []string{onOneCPU, "two-cpus"}, 0), Arms: []string{stock, ours}, Seeds: c.seeds, Jitter: .002,
			Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
				s := invented.Typical(arm, seed, step)
				s.Values = map[string]float64{perOp: 1000}
				return s
			},
			Spoil: func(r *bench.Record) {
				r.Plan = bench.Plan{Arms: []string{stock, ours}, SeedFirst: 1, Seeds: c.planned}
				if c.topology != "" {
					r.Plan.Topologies = []string{"1s4c1t", c.topology}
				}
				if r.Arm.Name == ours && r.Seed <= uint64(c.void) {
					r.Window.IdleBefore = 0
				}
			},
		}
		if err := campaign.Write(filepath.Join(root, "2026-01-01-pipe")); err != nil {
			t.Fatal(err)
		}
		target := all(t, root)["T16"]
		switch met := target.Met != nil && *target.Met; {
		case c.want == "met" && !met:
			t.Errorf("%s: met %v, note %q", name, target.Met, target.Note)
		case c.want != "met" && (target.Met != nil || !strings.Contains(target.Note, c.want)):
			t.Errorf("%s: met %v, note %q, want %q in it", name, target.Met, target.Note, c.want)
		}
	}
}

// A look of one seed that lies farther off hides no miss that eight seeds have shown.
func TestALookHidesNoMiss(t *testing.T) {
	root := t.TempDir()
	for name, c := range map[string]struct {
		topology string
		seeds    int
		slower   time.Duration
	}{"look": {"1s8c1t", 1, 40}, "whole": {"1s4c1t", 6, 2}} {
		s := short("memcached")
		s.Topology = c.topology
		campaign := invented.Campaign{
			Scenario: s, Arms: []string{tuned, ours}, Seeds: c.seeds, Jitter: .002,
			Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
				s := invented.Typical(tuned, seed, step)
				if arm == ours {
					s.P50, s.P99 = s.P50*c.slower, s.P99*c.slower
				}
				return s
			},
		}
		if err := campaign.Write(filepath.Join(root, "2026-01-01-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	target := all(t, root)["T1"]
	for _, p := range target.Parts {
		if strings.Contains(p.What, "eevdf-tuned") && (p.Met == nil || *p.Met || !strings.HasSuffix(p.Record, "whole")) {
			t.Errorf("%+v", p)
		}
	}
}

// What one boot happened to give is shown, and proves nothing.
func TestOneSeedMeetsNothing(t *testing.T) {
	for id, target := range all(t, records(t, 1, nil)) {
		if target.Met != nil {
			t.Errorf("%s is met: %v by one seed: %+v", id, *target.Met, target.Parts)
		}
		if target.Figure != nil && !strings.Contains(target.Note, "one seed") {
			t.Errorf("%s does not say that it rests on one seed: %q", id, target.Note)
		}
	}
}

// A step that only a look is of meets nothing, also where another step is worse.
func TestALookIsNotTheBetterStep(t *testing.T) {
	root := t.TempDir()
	handOver(t, filepath.Join(root, "2026-01-01-whole"), "1s4c1t", 6, 1050)
	handOver(t, filepath.Join(root, "2026-01-01-look"), "1s8c1t", 1, 1000)
	const want = "one seed is too few at pipe, 1s8c1t"
	if target := all(t, root)["T16"]; target.Met != nil || !strings.Contains(target.Note, want) {
		t.Errorf("met %v, note %q, want %q in it", target.Met, target.Note, want)
	}
}

// An interval too long is one, whoever saw it: a look hides none, and shows one.
func TestALookShowsAnExtreme(t *testing.T) {
	for bad, want := range map[string]bool{"": true, "whole": false, "look": false} {
		root := t.TempDir()
		for name, c := range map[string]struct {
			day   string
			seeds int
		}{"whole": {"2026-01-01", 6}, "look": {"2026-01-02", 1}} {
			campaign := invented.Campaign{
				Scenario: short("chain"), Arms: []string{ours}, Seeds: c.seeds, Jitter: .002,
				Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
					s := invented.Typical(arm, seed, step)
					s.Inversion = 0
					if name == bad {
						s.Inversion = 101 * time.Microsecond
					}
					return s
				},
			}
			if err := campaign.Write(filepath.Join(root, c.day+"-"+name)); err != nil {
				t.Fatal(err)
			}
		}
		if target := all(t, root)["T5"]; target.Met == nil || *target.Met != want {
			t.Errorf("bad is %q: met %v: %s", bad, target.Met, target.Note)
		}
	}
}

// p99.9 of a newer engine that has too few requests is not known: an older one's does not
// speak for it. Where no record has enough, or but a look has not, nothing is hidden.
func TestTooFewRequestsAreOpen(t *testing.T) {
	const many, few = 6, 5 // seeds of 18,000 requests
	for name, tc := range map[string]struct {
		days map[string]int // seeds
		void string
		by   string
	}{
		"fewer later":   {map[string]int{"2026-01-01": many, "2026-01-02": few}, "too few requests since 2026-01-02 at memcached-ladder, 1s4c1t, full, 16 spinners", ""},
		"fewer earlier": {map[string]int{"2026-01-01": few, "2026-01-02": many}, "", "2026-01-02"},
		"a look later":  {map[string]int{"2026-01-01": many, "2026-01-02": 1}, "", "2026-01-01"},
		"never enough":  {map[string]int{"2026-01-01": few, "2026-01-02": few}, "", ""},
	} {
		root := t.TempDir()
		for day, seeds := range tc.days {
			c := invented.Campaign{Scenario: short("memcached"), Arms: []string{ours}, Seeds: seeds, Jitter: .002, Shape: invented.Typical}
			c.Scenario.Points, c.Scenario.Densities = []bench.Point{{Name: "full", Rate: 180_000}}, []int{0, 16}
			if err := c.Write(filepath.Join(root, day+"-memcached")); err != nil {
				t.Fatal(err)
			}
		}
		part := all(t, root)["T1"].Parts[1]
		if !strings.HasPrefix(part.What, "p99.9") || part.Void != tc.void || (part.Figure != nil) != (tc.by != "") || !strings.HasPrefix(filepath.Base(part.Record), tc.by) {
			t.Errorf("%s: %+v", name, part)
		}
	}
}
