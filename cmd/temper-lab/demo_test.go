// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// The demonstration's second part is one line for the stock kernel and one for
// ours: PostgreSQL at the same limit.
func TestDemoShowsALimit(t *testing.T) {
	d := demo{window: 300 * time.Millisecond, topology: "1s4c1t"}
	s, err := d.limitScenario()
	if err != nil {
		t.Fatal(err)
	}
	if steps := s.Steps(); len(steps) != 1 || steps[0].Rate != 0 || s.Primary.LimitMilliCPU != 1500 || s.Primary.Kind != "postgresql" || s.Load.Window != d.window {
		t.Errorf("scenario %+v", s)
	}
	arms, err := bench.ParseArms([]string{"eevdf", "eevdf-tuned", "temper"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range atLimit(arms) {
		names = append(names, a.Name)
	}
	if !slices.Equal(names, []string{"eevdf", "temper"}) || len(arms) != 3 {
		t.Errorf("arms %q", names)
	}
}
