// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// agentRecords is one window of each of the agent's points.
func agentRecords(t *testing.T, spoil func(*bench.Record)) []*bench.Record {
	t.Helper()
	c := invented.Campaign{
		Scenario: invented.Agent(), Arms: []string{"temper:no-probe"}, Seeds: 1, Spoil: spoil,
		Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
			s := invented.Typical(arm, seed, step)
			s.Inversion, s.Ops, s.Values = 0, 1, invented.AtAgent()
			if step.Rate == 0 {
				s.P50, s.P99 = 0, 0
			}
			return s
		},
	}
	records, err := c.Records()
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestAgentWindows(t *testing.T) {
	for _, r := range agentRecords(t, nil) {
		if !r.Verdict.Valid {
			t.Errorf("%s: %q", r.ID(), r.Verdict.Reasons)
		}
	}
	for name, c := range map[string]struct {
		spoil func(*bench.Record)
		want  string
		void  []string // the points at which it is
	}{
		"nobody looked": {
			func(r *bench.Record) { delete(r.Window.Primary.Values, bench.ValueStock) }, "stock_ns is missing",
			[]string{"pods", bench.PointRestart, bench.PointUpgrade, bench.PointEject},
		},
		"no figure": {
			func(r *bench.Record) { delete(r.Window.Primary.Values, bench.ValueBack) }, "back_ns is missing", []string{bench.PointEject},
		},
		"it attached once more": { // where that is no finding
			func(r *bench.Record) { r.Window.Sched[1].EnableSeq++ }, "attached", []string{bench.PointQuiet},
		},
		"nothing was replaced": {
			func(r *bench.Record) { r.Window.Sched[1].EnableSeq = r.Window.Sched[0].EnableSeq }, "nothing was replaced",
			[]string{bench.PointUpgrade, bench.PointEject},
		},
		"it did not come back": {
			func(r *bench.Record) { r.Window.Sched[1].State = "disabled" }, "expected temper",
			[]string{bench.PointQuiet, "pods", bench.PointRestart, bench.PointUpgrade, bench.PointEject},
		},
		"no pod came": {
			func(r *bench.Record) { r.Window.Primary.Latency, r.Window.Primary.Slowest = nil, nil }, "no pod became effective", []string{"pods"},
		},
		"pods came late": {
			func(r *bench.Record) {
				if r.Window.Primary.Lag != nil {
					r.Window.Primary.Lag.RecordN(time.Second, 100)
				}
			}, "pods were made", []string{"pods"},
		},
		"few pods came": {
			func(r *bench.Record) { r.Window.Primary.Offered /= 2 }, "arrivals a second", []string{"pods"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range agentRecords(t, c.spoil) {
				got := slices.ContainsFunc(r.Verdict.Reasons, func(reason string) bool { return strings.Contains(reason, c.want) })
				if want := slices.Contains(c.void, r.Window.Step.Point); got != want {
					t.Errorf("%s: %q, void with %q: want %v", r.Window.Step.Point, r.Verdict.Reasons, c.want, want)
				}
			}
		})
	}
}
