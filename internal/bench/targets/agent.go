// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"fmt"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// agents visits the cells of the points that keep takes.
func (s set) agents(keep func(bench.Point) bool, visit func(*ladder.Cell) stats.Estimate) []sample {
	var out []sample
	for _, l := range s.of("agent") {
		for _, p := range l.Points() {
			for _, d := range l.Densities(p.Name) {
				if c := l.Arm(ours+unmeasured).Cell(p.Name, d); keep(p) {
					out = append(out, of(l, place(l, p.Name, d), visit(c), c))
				}
			}
		}
	}
	return out
}

// valueAt is a figure of the windows at one point.
func (s set) valueAt(point, name string) []sample {
	return s.agents(named(point), func(c *ladder.Cell) stats.Estimate { return c.Value(name) })
}

// mostAt is the largest of a figure in any window at the points that keep takes.
func (s set) mostAt(keep func(bench.Point) bool, name string) []sample {
	out := s.agents(keep, func(c *ladder.Cell) stats.Estimate {
		e := c.Value(name)
		if !e.Known() {
			return e
		}
		return exactly(c.MostOf(name), e.Seeds)
	})
	for i := range out {
		out[i] = out[i].extreme()
	}
	return out
}

// named takes the point of a name.
func named(point string) func(bench.Point) bool {
	return func(p bench.Point) bool { return p.Name == point }
}

// ofPods are the points at which pods come and go.
func ofPods(p bench.Point) bool { return p.Rate > 0 }

func reconfigured(s set) []Part {
	effective := s.agents(ofPods, func(c *ladder.Cell) stats.Estimate { return c.Tail(.99) })
	return []Part{
		atMost(0, duration).part("under the stock scheduler while pods come and go", s.mostAt(ofPods, bench.ValueStock)),
		atMost(float64(10*time.Millisecond), duration).part("p99 from a pod's event until its tier is in force", effective),
	}
}

func upgraded(s set) []Part {
	return []Part{
		atMost(0, duration).part("under the stock scheduler while the agent restarts", s.mostAt(named(bench.PointRestart), bench.ValueStock)),
		atMost(float64(10*time.Millisecond), duration).part("under the stock scheduler while another BPF object takes over", s.mostAt(named(bench.PointUpgrade), bench.ValueStock)),
	}
}

func ejected(s set) []Part {
	return []Part{
		atMost(float64(time.Second), duration).part("from an eject until the node object says so", s.mostAt(named(bench.PointEject), bench.ValueNoticed)),
		atMost(float64(3*time.Second), duration).part("from an eject until the scheduler is back", s.mostAt(named(bench.PointEject), bench.ValueBack)),
	}
}

func footprint(s set) []Part {
	return []Part{
		atMost(.01, percent).part("the agent's share of a CPU at 110 pods", s.valueAt(bench.PointQuiet, bench.ValueAgentCPUs)),
		atMost(64<<20, mebi).part("its most resident memory", s.mostAt(named(bench.PointQuiet), bench.ValueAgentPeak)),
	}
}

func mebi(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
