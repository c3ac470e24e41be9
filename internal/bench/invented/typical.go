// SPDX-License-Identifier: Apache-2.0

package invented

import (
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// Ladder is a server's scenario that is small enough for a test: two operating
// points, up and down.
func Ladder(kind string) bench.Scenario {
	return bench.Scenario{
		Name: kind + "-ladder", Title: kind + " beside 0 to 16 spinners", Measures: "request latency", Topology: "1s4c1t", Instrument: true,
		Primary: bench.Primary{Kind: kind, Threads: 2, RequestMilliCPU: 2000},
		Load: bench.Load{
			Arrivals: bench.ArrivalsPoisson, Conns: 8, Keys: 1000, ValueBytes: 100, SetEvery: 10,
			Warmup: 20 * time.Millisecond, Window: 100 * time.Millisecond, Pad: 10 * time.Millisecond,
		},
		MaxRate: 50_000, Points: []bench.Point{{Name: "null", Rate: 1000}, {Name: "60 %", Share: .6}},
		Densities: []int{0, 1, 2, 4, 8, 16, 8, 4, 2, 1, 0},
	}
}

// Own is the scenario of a primary that measures itself, with a ladder or, with
// a single density, without.
func Own(kind, measures string, points []string, densities ...int) bench.Scenario {
	s := bench.Scenario{
		Name: kind, Title: "invented " + kind, Measures: measures, Topology: "1s4c1t",
		Primary: bench.Primary{Kind: kind, Threads: 2, RequestMilliCPU: 2000},
		Load:    bench.Load{Window: 100 * time.Millisecond, Pad: 10 * time.Millisecond}, Densities: densities,
	}
	for _, p := range points {
		s.Points = append(s.Points, bench.Point{Name: p})
	}
	return s
}

// Typical is what such a campaign may measure: a stock kernel whose tail leaves
// as the node fills, a tuned one that grows a little, ours that stays.
func Typical(arm string, _ uint64, step bench.Step) Shape {
	n := float64(step.Density)
	s := Shape{P50: 34 * time.Microsecond, P99: 62 * time.Microsecond, Critical: .4, Background: min(n, 2.55), WorstWait: 90 * time.Millisecond}
	grow := func(perSpinner float64) { s.P99 = time.Duration(float64(s.P99) * (1 + perSpinner*min(n, 8))) }
	switch arm {
	case "eevdf":
		if grow(.1); step.Density >= 4 {
			s.P50, s.P99, s.Inversion = 700*time.Microsecond, 2*time.Millisecond, 20*time.Millisecond
		}
		s.Background = min(n, 2.59)
	case "eevdf:inverted":
		s.P50, s.P99, s.Background = s.P50*time.Duration(1+5*n), s.P99*time.Duration(1+40*n), min(n, 2.6)
	case "eevdf-tuned":
		grow(.03)
	case "static":
		grow(.001)
		s.Background = min(n, 1)
	case "temper:landing":
		grow(.001)
		s.Background = min(n, 2)
	case "temper:no-preempt":
		grow(2)
	default:
		grow(.005)
	}
	return s
}

// Arms are those of a full campaign.
func Arms() []string {
	return []string{"eevdf", "eevdf-tuned", "static", "temper", "temper:landing", "temper:no-preempt", "temper:again", "temper:no-probe", "eevdf:inverted"}
}
