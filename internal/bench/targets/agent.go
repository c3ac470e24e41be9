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
					out = append(out, sample{visit(c), l, place(l, p.Name, d)})
				}
			}
		}
	}
	return out
}

// valueAt is a figure of the windows at one point.
func (s set) valueAt(point, name string) []sample {
	return s.agents(func(p bench.Point) bool { return p.Name == point }, func(c *ladder.Cell) stats.Estimate { return c.Value(name) })
}

// ofPods are the points at which pods come and go.
func ofPods(p bench.Point) bool { return p.Rate > 0 }

func reconfigured(s set) []Part {
	stock := s.agents(ofPods, func(c *ladder.Cell) stats.Estimate { return c.Value(bench.ValueStock) })
	effective := s.agents(ofPods, func(c *ladder.Cell) stats.Estimate { return c.Tail(.99) })
	return []Part{
		extreme(atMost(0, duration).part("under the stock scheduler while pods come and go", stock), duration),
		atMost(float64(10*time.Millisecond), duration).part("p99 from a pod's event until its tier is in force", effective),
	}
}

func upgraded(s set) []Part {
	return []Part{
		extreme(atMost(0, duration).part("under the stock scheduler while the agent restarts", s.valueAt(bench.PointRestart, bench.ValueStock)), duration),
		atMost(float64(10*time.Millisecond), duration).part("under the stock scheduler while another BPF object takes over", s.valueAt(bench.PointUpgrade, bench.ValueStock)),
	}
}

func ejected(s set) []Part {
	return []Part{
		atMost(float64(time.Second), duration).part("from an eject until the node object says so", s.valueAt(bench.PointEject, bench.ValueNoticed)),
		atMost(float64(3*time.Second), duration).part("from an eject until the scheduler is back", s.valueAt(bench.PointEject, bench.ValueBack)),
	}
}

func footprint(s set) []Part {
	return []Part{
		atMost(.01, percent).part("the agent's share of a CPU at 110 pods", s.valueAt(bench.PointQuiet, bench.ValueAgentCPUs)),
		atMost(64<<20, mebi).part("its most resident memory", s.valueAt(bench.PointQuiet, bench.ValueAgentPeak)),
	}
}

func mebi(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
