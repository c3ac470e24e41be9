// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/topology"
)

// layout says whose the node's CPUs are.
type layout struct {
	all  []int
	pods []int // that pods may use
	// last is where this program lives: the instrument's own CPU, or where
	// there is none, one of the pods'.
	last  int
	fence []int // the critical pod's whole cores; empty if it asks for none
	rest  []int // the pods' other CPUs
}

// layOut divides the node's CPUs for scenario.
func layOut(scenario bench.Scenario, top topology.Topology) (layout, error) {
	l := layout{all: top.Online()}
	if len(l.all) < 2 {
		return l, fmt.Errorf("lay out node: %d CPUs, but pods and the instrument need one each", len(l.all))
	}
	l.last = l.all[len(l.all)-1]
	l.pods = l.all
	if scenario.Instrument {
		l.pods = l.all[:len(l.all)-1]
	}
	l.fence = fence(top.Cores(), l.pods, scenario.Primary.RequestMilliCPU/1000)
	for _, cpu := range l.pods {
		if !slices.Contains(l.fence, cpu) {
			l.rest = append(l.rest, cpu)
		}
	}
	return l, nil
}

// fence returns whole cores for want CPUs, of those that are the pods' alone.
// One core stays with the rest of the node.
func fence(cores [][]int, pods []int, want int) []int {
	var out []int
	taken := 0
	for _, core := range cores {
		if len(out) >= want || taken == len(cores)-1 {
			break
		}
		foreign := slices.ContainsFunc(core, func(cpu int) bool { return !slices.Contains(pods, cpu) })
		if !foreign {
			out, taken = append(out, core...), taken+1
		}
	}
	slices.Sort(out)
	return out
}
