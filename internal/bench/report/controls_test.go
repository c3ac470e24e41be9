// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Of few seeds an inverted arm that is a hair worse tells nothing, one that is far worse does.
func TestFewSeedsTellOnlyALargePositiveControl(t *testing.T) {
	for name, tc := range map[string]struct {
		seeds int
		worse float64
		want  State
		did   string
	}{
		"a hair, one seed":    {1, 1.001, Told, "of 1 seed, too few to tell"},
		"better, one seed":    {1, .5, Told, "0.50× at 16 spinners"},
		"a lot, one seed":     {1, 1.5, AsExpected, "1.50× at 16 spinners"},
		"a hair, four seeds":  {4, 1.01, Told, "of 4 seeds, too few to tell"},
		"a lot, four seeds":   {4, 1.5, AsExpected, "1.50×"},
		"alike, five seeds":   {5, 1, Unexpected, "1.00×"},
		"clearly, five seeds": {5, 1.03, AsExpected, "1.03×"},
	} {
		c := short(tc.seeds, "eevdf", "eevdf:inverted")
		c.Jitter = 0
		c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
			s := invented.Typical("eevdf", seed, step)
			s.P50, s.P99 = 10*time.Millisecond, 20*time.Millisecond
			if arm == "eevdf:inverted" {
				s.P50, s.P99 = time.Duration(tc.worse*float64(s.P50)), time.Duration(tc.worse*float64(s.P99))
			}
			return s
		}
		found := false
		for _, control := range made(t, c).Sections[0].Controls() {
			if strings.HasPrefix(control.Name, "positive") {
				found = true
				if control.State != tc.want || !strings.Contains(plainText(control.Did), tc.did) {
					t.Errorf("%s: %q (%s), want %q (%s)", name, control.State, control.Did, tc.want, tc.did)
				}
			}
		}
		if !found {
			t.Errorf("%s: no positive control", name)
		}
	}
}

// A step of few seeds, however far off, hides nothing of what the others show, and one
// of many makes nothing of few.
func TestAStepOfFewSeedsDecidesNoControl(t *testing.T) {
	at := func(figure float64, seeds int) compared {
		return compared{stats.Estimate{Figure: figure, Low: figure - .01, High: figure + .01, Seeds: seeds}, "somewhere", "p99"}
	}
	for name, tc := range map[string]struct {
		all  []compared
		want State
		did  string
	}{
		"the farthest has few":   {[]compared{at(2, 3), at(1.2, 8), at(1.2, 8), at(1.2, 8)}, Unexpected, "3 of 3 intervals leave out 1; farthest 1.20×"},
		"all but the farthest":   {[]compared{at(1.2, 3), at(1.2, 3), at(1.2, 3), at(1, 8)}, AsExpected, "; not judged: 3 of fewer than 5 seeds"},
		"few that differ, alone": {[]compared{at(1.2, 3), at(1.2, 4)}, Told, "2 of 2 intervals leave out 1"},
	} {
		if did, state := same(tc.all); state != tc.want || !strings.Contains(did, tc.did) {
			t.Errorf("%s: %q (%s), want %q (%s)", name, state, did, tc.want, tc.did)
		}
	}
	if should := allowance([]compared{at(2, 3), at(1, 8), at(1, 8)}); !strings.HasPrefix(should, "of 2 intervals ") {
		t.Errorf("chance is counted of %q", should)
	}
}

// Arms that show what measuring costs are not measured.
func TestTheProbeIsNotSaidToRunWhereItDoesNot(t *testing.T) {
	for want, arms := range map[string][]string{
		"runs in every arm and is part of every latency.":                                                       {"eevdf", "temper"},
		"runs in every arm but eevdf:no-probe and temper:no-probe, and is part of every latency of the others.": {"eevdf", "temper", "eevdf:no-probe", "temper:no-probe"},
	} {
		lacks(t, plainText(made(t, short(1, arms...)).Sections[0].Caveats()...), want)
	}
}

// A window is void where the client was the bottleneck; then the client was it.
func TestAClientThatIsTheBottleneckIsNotAsExpected(t *testing.T) {
	late := func(rec *bench.Record) {
		h := bench.NewHist()
		for range rec.Window.Primary.Requests {
			h.Record(time.Second)
		}
		rec.Window.Primary.Lag = h
	}
	waits := func(rec *bench.Record) { rec.Window.Primary.RunDelay = rec.Scenario.Load.Window }
	agent := invented.Campaign{Scenario: invented.Agent(), Arms: []string{"temper:no-probe"}, Seeds: 5, Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		s.Values = invented.AtAgent()
		return s
	}}
	busy := kinds()["postgresql"]
	for name, tc := range map[string]struct {
		c     invented.Campaign
		spoil func(*bench.Record)
		void  int // windows of the first seed, all of one arm
	}{
		"it sent late":              {short(5, "temper"), late, 2},
		"it waited for its CPU":     {short(5, "temper"), waits, 2},
		"a tool waited for its CPU": {busy, func(rec *bench.Record) { rec.Window.Primary.RunDelay = 1000 * rec.Scenario.Load.Window }, 4},
		"a tool used all of its CPU": {busy, func(rec *bench.Record) {
			l := &rec.Window.Ledger
			l.Instrument, l.Idle = l.Length, l.Idle+l.Instrument-l.Length
		}, 4},
		"pods were made late":           {agent, late, 1},
		"something else was the matter": {short(5, "temper"), func(rec *bench.Record) { rec.Window.Primary.Wrong = 1 }, 0},
	} {
		tc.c.Spoil = func(rec *bench.Record) {
			if rec.Seed == 1 && rec.Arm.Name == tc.c.Arms[0] {
				tc.spoil(rec)
			}
		}
		s := made(t, tc.c).Sections[0]
		did, want := "sent at most", AsExpected
		if tc.void > 0 {
			did, want = fmt.Sprintf("not so in %d of %d windows", tc.void, s.Windows), Unexpected
		}
		controls := s.clients()
		if len(controls) != 1 || controls[0].State != want || !strings.Contains(plainText(controls[0].Did), did) {
			t.Errorf("%s: %+v, want %q and %q; void: %+v", name, controls, want, did, s.Void)
		}
	}
	// A client that never kept up has no figure of its own, and is not left out for it.
	c := short(2, "temper")
	c.Spoil = late
	if controls := made(t, c).Sections[0].clients(); len(controls) != 1 || controls[0].State != Unexpected || !strings.HasPrefix(controls[0].Did, "not so in 4 of 4 windows") {
		t.Errorf("%+v", controls)
	}
}
