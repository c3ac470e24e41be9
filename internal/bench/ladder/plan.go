// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"reflect"
	"slices"

	"github.com/temper-sched/temper/internal/bench"
)

// run is one arm with one seed.
type run struct {
	arm  string
	seed uint64
}

// Lacking is an arm that has not all windows of each seed that was planned.
type Lacking struct {
	Arm            string
	Whole, Planned int // seeds
}

// plan keeps what a record says of its campaign: one that was resumed with more arms or
// seeds has several plans.
func (l *Ladder) plan(p bench.Plan) {
	if !slices.ContainsFunc(l.plans, func(q bench.Plan) bool { return reflect.DeepEqual(p, q) }) {
		l.plans = append(l.plans, p)
	}
}

// setting is a scenario, by name, on a topology.
type setting struct{ scenario, topology string }

// absent lists the topologies that the plans name and that are not there.
func (l *Ladder) absent(there map[setting]bool) []string {
	var out []string
	for _, p := range l.plans {
		for _, t := range p.Topologies {
			if !there[setting{l.Scenario.Name, t}] && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// Lacks lists the arms that have less than was planned: the campaign has not ended, or
// windows were taken out.
func (l *Ladder) Lacks() []Lacking {
	steps := len(l.Scenario.Steps())
	seen, arms := map[run]bool{}, []Lacking{}
	for _, p := range l.plans {
		for _, arm := range p.Arms {
			i := slices.IndexFunc(arms, func(a Lacking) bool { return a.Arm == arm })
			if i < 0 {
				i, arms = len(arms), append(arms, Lacking{Arm: arm})
			}
			for n := range min(p.Seeds, bench.MaxSeeds) {
				r := run{arm, p.SeedFirst + uint64(n)}
				if seen[r] {
					continue
				}
				seen[r] = true
				arms[i].Planned++
				if l.runs[r] >= steps {
					arms[i].Whole++
				}
			}
		}
	}
	return slices.DeleteFunc(arms, func(a Lacking) bool { return a.Whole == a.Planned })
}
