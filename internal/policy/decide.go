// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// Decide returns the plan that follows prev under obs: a group for each
// default and for each pod whose cgroup is known, and fences for critical pods.
//
// Fences are as large as requests, in whole cores, near each other, and stay
// where prev has them while they fit. Older pods come first: where not all
// fences fit, the newest pods go without, and NotFenced says so. One core that
// no pod has for itself is always left. The plan is one that Validate and Fit
// have nothing against, and deciding again from it changes nothing.
//
// prev may be a plan read back from the kernel: groups are told by their ids.
func Decide(prev Plan, obs Observation) Plan {
	plan := Plan{Lend: obs.Lend, CPUMax: obs.CPUMax, Groups: slices.Clone(obs.Defaults)}
	pods := known(obs)
	plan.Groups = slices.Grow(plan.Groups, len(pods))
	f := newFences(obs)
	var wanted []demand
	for _, p := range pods {
		g := Group{Cgroup: p.Cgroup, ID: p.ID, Tier: p.Tier}
		switch {
		case p.Tier != tier.Critical:
		case len(p.Exclusive) > 0:
			g.Fence, g.NotFenced = f.exclusive(*p, obs)
		case p.MilliCPU <= 0:
			g.NotFenced = "it requests no CPU, and a fence is as large as the request"
		default:
			wanted = append(wanted, demand{group: len(plan.Groups), cpus: wholeCPUs(p.MilliCPU)})
		}
		plan.Groups = append(plan.Groups, g)
	}
	f.plan(prev, plan.Groups, wanted)
	capFences(plan.Groups)
	return plan
}

// known returns the pods whose cgroup is known, the oldest first.
func known(obs Observation) []*Pod {
	seen := make(map[uint64]bool, 1+len(obs.Defaults)+len(obs.Pods))
	seen[0] = true
	for _, g := range obs.Defaults {
		seen[g.ID] = true
	}
	pods := make([]*Pod, len(obs.Pods))
	for i := range obs.Pods {
		pods[i] = &obs.Pods[i]
	}
	slices.SortFunc(pods, Older)
	return slices.DeleteFunc(pods, func(p *Pod) bool {
		again := seen[p.ID]
		seen[p.ID] = true
		return again
	})
}

// Older orders pods, the one that keeps its fence longer first.
func Older(a, b *Pod) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return strings.Compare(a.UID, b.UID)
}

func wholeCPUs(milli int64) int {
	cpus := milli / 1000
	if milli%1000 > 0 {
		cpus++
	}
	return int(cpus)
}

// exclusive returns the CPUs that kubelet gave to p alone as its fence. Its
// threads' affinity holds them there, so no other CPUs would do.
func (f *fences) exclusive(p Pod, obs Observation) (fence []int, why string) {
	cpus := slices.Compact(slices.Sorted(slices.Values(p.Exclusive)))
	whole := len(obs.Topology.Missing(cpus)) == 0
	for _, id := range cpus {
		cpu, _ := obs.Topology.Lookup(id)
		whole = whole && cpu.Online && f.claims[id] == 1
	}
	if !whole {
		return nil, fmt.Sprintf("its exclusive CPUs %s are not whole cores that it has alone", topology.FormatList(cpus))
	}
	need := coreCount(cpus, obs.Topology)
	if f.given+need > len(f.cores)-1 {
		return nil, fmt.Sprintf("its exclusive CPUs %s are %s, %s left of %d: one stays with the rest of the node",
			topology.FormatList(cpus), cores(need), remaining(len(f.cores)-1-f.given), len(f.cores))
	}
	f.given += need
	return cpus, ""
}
