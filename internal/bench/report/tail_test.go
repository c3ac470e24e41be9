// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// everything is a report in all its forms, as one line.
func everything(t *testing.T, r *Report) string {
	t.Helper()
	var out strings.Builder
	if err := errors.Join(r.Text(&out), r.Markdown(&out)); err != nil {
		t.Fatal(err)
	}
	return plainText(out.String(), render(t, r, "everything"))
}

// A p99 of a few hundred requests is a handful of them: p95 stands for the tail where a
// step has fewer than a thousand, nothing where it has fewer than 200.
func TestTailIsOneThatRequestsCarry(t *testing.T) {
	nearlyIdle := func(seeds int) *Report { // 100 requests in a window
		c := short(seeds, "eevdf", "temper", "temper:again", "temper:no-probe", "eevdf:inverted")
		c.Scenario.Points = []bench.Point{{Name: "null", Rate: 1000}}
		c.Scenario.Densities = []int{0, 4, 0}
		return made(t, c)
	}
	for seeds, want := range map[int]struct{ has, lacks []string }{
		10: {[]string{"memcached's p99 request latency is", "p99 alone", "p99 request latency, log", "p99 rests on about 10 to 20 of them"}, []string{"p95 alone"}},
		8: {
			[]string{
				"memcached's p95 request latency is", "temper's p95 is", "p95 alone", "p95 at 4", "p95 request latency, log", "p95 over own p95 without background", "p95, times idle eevdf",
				"twice the p95 of eevdf", "p95 at 4 spinners against none", "p95 with the probe is", "800 to 1,600 requests of all seeds. No p99 is given of fewer than 1,000",
			},
			[]string{"p99 request latency", "p99 alone", "temper's p99", "p99 with", "p99 over"},
		},
		4: {[]string{"too few for p99, which would need 1,000. p95 stands for the tail and rests on about 20 to 40 of them"}, []string{"p99 alone", "p99 request latency"}},
		1: {[]string{"100 to 200 requests in a step, too few for a figure of the tail", "and for p95, which would need 200 of each step"}, []string{"p99 alone", "p95 alone", "p95 request"}},
	} {
		r := nearlyIdle(seeds)
		text := everything(t, r)
		lacks(t, text, want.has...)
		for _, claim := range want.lacks {
			if strings.Contains(text, claim) {
				t.Errorf("%d seeds: %q is said", seeds, claim)
			}
		}
	}
}

// Two points of one scenario may have another tail each.
func TestTailIsOfItsPoint(t *testing.T) {
	c := invented.Campaign{Scenario: invented.Agent(), Arms: []string{"temper:no-probe"}, Seeds: 1, Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		s.Values = invented.AtAgent()
		return s
	}}
	c.Scenario.Points[1].Rate = 900
	c.Scenario.Points = append(c.Scenario.Points, bench.Point{Name: "more pods", Rate: 1100})
	lacks(t, plainText(made(t, c).Sections[0].Headline()...), "Pods: a pod's tier was in force 51.9 µs (p95) after its event", "More pods: a pod's tier was in force 61.8 µs (p99) after its event")
}

// A window has too few requests for what a step may have enough for.
func TestLineHasNoThinTail(t *testing.T) {
	c := short(1, "temper")
	c.Scenario.Points[0] = bench.Point{Name: "few", Rate: 9990}
	records, err := c.Records()
	if err != nil {
		t.Fatal(err)
	}
	if fields := strings.Fields(Line(records[0])); fields[4] != none || fields[3] == none {
		t.Errorf("a p99 of 999 requests: %q", fields)
	}
}

// Who waits longer ends fewer waits: a quantile of them would flatter who starves.
func TestWaitsHaveNoQuantile(t *testing.T) {
	c := kinds()["starvation"]
	text := everything(t, made(t, c))
	lacks(t, text, "5,000 waits of all seeds. Who waits longer ends fewer, so that no percentile of them is given", "longest at 4")
	for _, claim := range []string{"p50", "p95", "p99 wait", "p99 alone"} {
		if strings.Contains(text, claim) {
			t.Errorf("%q is said of waits", claim)
		}
	}
	arms, err := Arms(ladders(t, "x", c), "eevdf", "temper")
	if err != nil || arms.Steps[0].P50 != nil || arms.Steps[0].P99 != nil {
		t.Errorf("%v, %+v", err, arms.Steps)
	}
}
