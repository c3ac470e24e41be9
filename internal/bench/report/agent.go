// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"github.com/temper-sched/temper/internal/bench"
)

// agentFigures say what each of the agent's figures is and how it is written: most is the
// largest of any window, as targets judge it, else the mean.
var agentFigures = []struct {
	name, text string
	format     func(float64) string
	most       bool
}{
	{bench.ValueAgentCPUs, "the agent used %s of a CPU", percent, false},
	{bench.ValueAgentPeak, "had at most %s resident", mebi, true},
	{bench.ValueAlone, "nobody held the scheduler for up to %s", micros, true},
	{bench.ValueNoticed, "the node object said so after at most %s", micros, true},
	{bench.ValueBack, "the scheduler was back after at most %s", micros, true},
	{bench.ValueStock, "the kernel's own scheduler ran for at most %s", micros, true},
}

// agentHeadline says of each operating point what it is there for.
func (s *Section) agentHeadline() []string {
	var out []string
	for i := range s.Points {
		p := &s.Points[i]
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				if parts := agentParts(p, c); c.Valid() {
					out = append(out, fmt.Sprintf("%s: %s.", capital(p.Name), list(parts)))
				}
			}
		}
	}
	return out
}

func agentParts(p *Point, c Cell) []string {
	var parts []string
	if c.Tail.Known() {
		parts = append(parts, fmt.Sprintf("a pod's tier was in force %s (%s) after its event", with(c.Tail, micros), p.tailName()))
	}
	for _, f := range agentFigures {
		quiet := slices.Contains([]string{bench.PointQuiet, bench.PointScraped}, p.Name)
		ofAgent := f.name == bench.ValueAgentCPUs || f.name == bench.ValueAgentPeak
		e := c.Value(f.name)
		if !e.Known() || quiet != ofAgent {
			continue
		}
		figure := with(e, f.format)
		if f.most {
			figure = f.format(c.MostOf(f.name))
		}
		parts = append(parts, fmt.Sprintf(f.text, figure))
	}
	return parts
}

func mebi(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
