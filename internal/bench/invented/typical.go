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

// Agent is the scenario of the node agent with all its points.
func Agent() bench.Scenario {
	s := Own("agent", "pod event to plan in force", []string{
		bench.PointQuiet, "pods", bench.PointRestart, bench.PointUpgrade, bench.PointEject,
	}, 0)
	s.Points[1].Rate, s.Load.Window = 500, time.Second
	s.Instrument, s.Primary.Params = true, map[string]float64{"pods": 110}
	return s
}

// AtAgent is what a window of it may say.
func AtAgent() map[string]float64 {
	return map[string]float64{
		bench.ValueAgentCPUs: .004, bench.ValueAgentPeak: 40 << 20, bench.ValueStock: 0, bench.ValueStarts: 1,
		bench.ValueAlone: 1e9, bench.ValueNoticed: 2e8, bench.ValueBack: 2.5e9,
	}
}

// Arms are those of a full campaign.
func Arms() []string {
	return []string{"eevdf", "eevdf-tuned", "static", "temper", "temper:landing", "temper:no-preempt", "temper:again", "temper:no-probe", "eevdf:inverted"}
}

// Limited is the scenario of a pod limited to 1.5 CPUs, by itself and beside
// spinners, for a second: it wants more than that, or 70 % of it.
func Limited(kind string) bench.Scenario {
	s := Own(kind, "request latency", []string{"saturated", "70 %"}, 0, 4)
	s.Name, s.Primary.Threads, s.Primary.LimitMilliCPU = kind+"-limit", 8, 1500
	s.Points[1].Rate = 500
	s.Load.Window = time.Second
	switch k := s.KindOf(); {
	case k.Tool:
		s.Instrument, s.Load.Conns, s.Load.Arrivals = true, 8, bench.ArrivalsPoisson
		s.Primary.Params = map[string]float64{"branches": 1, "accounts": 1}
	case kind == "requests":
		s.Primary.Params = map[string]float64{"request_us": 2000, "unit_us": 50}
	}
	return s
}

// AtLimit makes a shape one of a pod at its limit: frozen by the stock kernel
// for most of a period, held evenly by ours.
func AtLimit(arm string, s *Shape) {
	s.Critical, s.Background, s.Achieved = 1.5, min(s.Background, 1), 745
	s.P50, s.P99, s.Stopped, s.Uneven = 2*time.Millisecond, 60*time.Millisecond, 60*time.Millisecond, .04
	switch arm {
	case "eevdf-10ms":
		s.P99, s.Stopped = 40*time.Millisecond, 8*time.Millisecond
	case "temper":
		s.P50, s.P99, s.Stopped, s.Uneven = 8*time.Millisecond, 10*time.Millisecond, 2600*time.Microsecond, .005
	}
}
