// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"github.com/temper-sched/temper/internal/bench"
)

// agentFigures say what each of the agent's figures is and how it is written.
var agentFigures = []struct {
	name, text string
	format     func(float64) string
}{
	{bench.ValueAgentCPUs, "the agent used %s of a CPU", percent},
	{bench.ValueAgentPeak, "had at most %s resident", mebi},
	{bench.ValueAlone, "nobody held the scheduler for up to %s", micros},
	{bench.ValueNoticed, "the node object said so after %s", micros},
	{bench.ValueBack, "the scheduler was back after %s", micros},
	{bench.ValueStock, "the kernel's own scheduler ran for %s", micros},
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
	if c.P99.Known() {
		parts = append(parts, fmt.Sprintf("a pod's tier was in force %s (p99) after its event", with(c.P99, micros)))
	}
	for _, f := range agentFigures {
		quiet := slices.Contains([]string{bench.PointQuiet, bench.PointScraped}, p.Name)
		ofAgent := f.name == bench.ValueAgentCPUs || f.name == bench.ValueAgentPeak
		if e := c.Value(f.name); e.Known() && quiet == ofAgent {
			parts = append(parts, fmt.Sprintf(f.text, with(e, f.format)))
		}
	}
	return parts
}

func mebi(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
