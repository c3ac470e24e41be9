// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// "At most" is of the worst window, not of the mean one.
func TestTheAgentsMostIsOfAnyWindow(t *testing.T) {
	c := invented.Campaign{
		Scenario: invented.Agent(), Arms: []string{"temper:no-probe"}, Seeds: 5,
		Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
			s := invented.Typical(arm, seed, step)
			if s.Values = invented.AtAgent(); seed == 3 {
				s.Values[bench.ValueAgentPeak], s.Values[bench.ValueAlone], s.Values[bench.ValueNoticed], s.Values[bench.ValueBack] = 60<<20, 3e9, 8e8, 6e9
				if step.Point == bench.PointEject {
					s.Values[bench.ValueStock] = 7e9
				}
			}
			return s
		},
	}
	s := made(t, c).Sections[0]
	if len(s.Void) > 0 {
		t.Fatalf("void: %+v", s.Void[0])
	}
	lacks(t, plainText(s.Headline()...),
		"the agent used 0.4 % (0.4–0.4) of a CPU and had at most 60.0 MiB resident.",
		"nobody held the scheduler for up to 3.00 s",
		"the node object said so after at most 800 ms, the scheduler was back after at most 6.00 s and the kernel's own scheduler ran for at most 7.00 s.")
}

// A pod that may be farther off is the farthest: targets are judged by that end.
func TestTheFarthestShareIsByItsIntervalsEnd(t *testing.T) {
	c := kinds()["weights"]
	c.Scenario.Points = []bench.Point{{Name: "steady"}, {Name: "unsteady"}}
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		got := 1040 * time.Millisecond // of 2 s, half of which are its own: 4 % off
		if step.Point == "unsteady" {
			got = time.Duration(978+seed*20) * time.Millisecond // 3.8 % off, but not always
		}
		s.Pods = []bench.Pod{{Name: "a", Tier: "standard", Weight: 1, Threads: 3, CPUTime: got}, {Name: "b", Tier: "standard", Weight: 1, Threads: 3, CPUTime: 2*time.Second - got}}
		return s
	}
	lacks(t, plainText(made(t, c).Sections[0].Headline()...), "3.8 % (", "under temper (pod a at unsteady)")
}

// One arm alone has figures, if nothing to hold them against.
func TestOneArmAloneHasValidWindows(t *testing.T) {
	c := kinds()["pipe"]
	c.Arms = []string{"temper"}
	lacks(t, plainText(made(t, c).Sections[0].Headline()...), ": no two arms to hold against each other; the tables have the figures.")
}
