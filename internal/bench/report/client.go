// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench/stats"
)

// tooSlow is how the judge's reasons begin that are whoever's who asks: it did not when it
// was to.
var tooSlow = []string{"client was the bottleneck", "client waited ", "client's threads waited ", "pods were made "}

// voidForClient counts the windows that are void for one of these.
func (s *Section) voidForClient() int {
	n := 0
	for _, v := range s.Void {
		if slices.ContainsFunc(v.Reasons, func(reason string) bool {
			return slices.ContainsFunc(tooSlow, func(begins string) bool { return strings.HasPrefix(reason, begins) })
		}) {
			n++
		}
	}
	return n
}

// clients: the load generator's own account.
func (s *Section) clients() []Control {
	var lag, wait float64
	asked := false
	for _, p := range s.Points {
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				if c.Lag.Total() == 0 {
					continue
				}
				asked, wait = true, max(wait, c.RunDelay)
				if stats.Carries(.99, c.Lag.Total()) {
					lag = max(lag, stats.Quantile(stats.BySeed{0: c.Lag}, .99).Figure)
				}
			}
		}
	}
	late := s.voidForClient()
	if !asked && late == 0 {
		return nil
	}
	c := Control{Name: "the client", Should: "never be the bottleneck: a window in which it was is void", State: AsExpected}
	var did []string
	if s.Scenario.KindOf().Agent {
		c.Name, c.Should = "who makes the pods", "make them when they are due: a window in which the rate was another is void"
		if lag > 0 {
			did = append(did, fmt.Sprintf("made them at most %s late at p99; a pod's latency counts from when it was there", micros(lag)))
		}
	} else if asked {
		text := fmt.Sprintf("waited at most %s of a window for its CPU; that lag is part of every latency", percent(wait))
		if lag > 0 {
			text = fmt.Sprintf("sent at most %s late at p99 and ", micros(lag)) + text
		}
		did = append(did, text)
	}
	if late > 0 {
		c.State = Unexpected
		did = append(did, fmt.Sprintf("not so in %d of %s, which are void and not in these figures", late, number(s.Windows, "window")))
	}
	if len(did) == 0 {
		did = []string{"has too few requests for a figure"}
	}
	c.Did = strings.Join(did, "; ")
	return []Control{c}
}
