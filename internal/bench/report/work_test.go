// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// slowed is a pod at its limit that does a fiftieth less under ours, give or take what a
// seed does to both.
func slowed() invented.Campaign {
	c := kinds()["requests"]
	c.Arms = []string{"eevdf", "temper"}
	shape := c.Shape
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := shape(arm, seed, step)
		if s.Achieved = 740 + 2*float64(seed); arm == "temper" {
			s.Achieved *= .98
		}
		return s
	}
	return c
}

func TestLessWorkIsCompared(t *testing.T) {
	c, err := Arms(ladders(t, "x", slowed()), "eevdf", "temper")
	lacks(t, compareText(t, c, err), "work a second", "0.98× (0.98–0.98)*")
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, string(data), `"work":{"figure":0.98,`)
	// A step of what answers nothing has no such figure.
	c, err = Arms(ladders(t, "x", starving(5, "eevdf", "temper")), "eevdf", "temper")
	if err != nil || c.Steps[0].Work != nil {
		t.Errorf("%v: %+v", err, c)
	}
}

// Whether less was done is told by an interval, as of any other figure.
func TestWorkHasAnInterval(t *testing.T) {
	s := made(t, slowed()).Sections[0]
	table := s.Limits()
	at := slices.Index(table.Head, "work a second")
	for arm, want := range map[string]string{"eevdf": "746 (74", "temper": "731 (72"} {
		i := slices.IndexFunc(table.Rows, func(row []string) bool { return row[0] == arm })
		if got := table.Rows[i][at]; !strings.HasPrefix(got, want) || !strings.Contains(got, "–") {
			t.Errorf("%s did %q, want an interval as %q", arm, got, want)
		}
	}
	lacks(t, plainText(s.Headline()...), "Done in a second: 746 (74", ") under eevdf and 731 (72")
	if got := with(stats.Estimate{Figure: 31_476, Low: 31_476, High: 31_476, Seeds: 8}, rate); got != "31,476 (31,476–31,476)" {
		t.Errorf("thousands are no unit: %q", got)
	}
}
