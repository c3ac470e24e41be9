// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/temper-sched/temper/internal/topology"
)

// MaxFences is how many fences a plan can hold in the kernel.
const MaxFences = 255

// capFences leaves the first MaxFences.
func capFences(groups []Group) {
	n := 0
	for i := range groups {
		g := &groups[i]
		if len(g.Fence) == 0 {
			continue
		}
		if n++; n > MaxFences {
			g.Fence, g.NotFenced = nil, fmt.Sprintf("a plan holds %d fences, and as many come before it", MaxFences)
		}
	}
}

// Fit returns p with the fences that this node can afford.
//
// Fences are granted in the order of the groups while they leave one physical
// core to everything else: kubelet, the runtime and the kernel must run
// somewhere, and a node whose every core is fenced is worse off than stock. A
// group whose fence does not fit keeps its tier, so it still outranks the lower
// ones, and NotFenced says why. Fit expects a plan without Problems.
func Fit(p Plan, top topology.Topology) Plan {
	free := len(top.Cores()) - 1
	fitted := Plan{Lend: p.Lend, CPUMax: p.CPUMax, Groups: slices.Clone(p.Groups)}
	for i := range fitted.Groups {
		g := &fitted.Groups[i]
		if len(g.Fence) == 0 {
			continue
		}
		if need := coreCount(g.Fence, top); need > free {
			g.NotFenced = fmt.Sprintf("fence %s needs %s, %s left of %d: one stays with the rest of the node",
				topology.FormatList(g.Fence), cores(need), remaining(free), len(top.Cores()))
			g.Fence = nil
		} else {
			free -= need
		}
	}
	capFences(fitted.Groups)
	return fitted
}

func coreCount(cpus []int, top topology.Topology) int {
	seen := map[int]bool{}
	for _, id := range cpus {
		if cpu, found := top.Lookup(id); found {
			seen[cpu.Core] = true
		}
	}
	return len(seen)
}

func cores(n int) string {
	if n == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", n)
}

func remaining(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", max(n, 0))
}
