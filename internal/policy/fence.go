// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/temper-sched/temper/internal/topology"
)

// fences plans which cores are fenced for whom.
//
// Cores are told by their rank in the order in which fences take them: those
// with more threads first, the fast ones of a hybrid machine, and then from the
// highest CPU down, because interrupts and the kernel's own work gather on CPU 0.
type fences struct {
	cores  []core      // in rank
	pools  []pool      // the first has the highest CPU of the largest cores
	levels [][][]int   // domains of pools: each alone, those of each node, all
	claims map[int]int // of a CPU: by how many it is reserved or held exclusively
	open   int         // cores no CPU of which is exclusive; one of them is never fenced
	fenced int         // of those
	given  int         // cores fenced because kubelet gave them to a pod alone
}

type core struct {
	cpus  []int
	pool  int // index into fences.pools
	owner int // the group that it is fenced for, or free or unusable
}

const (
	free     = -1
	unusable = -2 // reserved or exclusive in part at least
)

// pool is the cores that share a last-level cache and a NUMA node.
type pool struct {
	node  int
	cores []int // in rank
}

// demand is what a critical group needs.
type demand struct {
	group int // index into Plan.Groups
	cpus  int
}

func newFences(obs Observation) *fences {
	f := &fences{claims: map[int]int{}}
	exclusive := map[int]bool{}
	for i := range obs.Pods {
		if len(obs.Pods[i].Exclusive) == 0 {
			continue
		}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(obs.Pods[i].Exclusive))) {
			exclusive[id] = true
			f.claims[id]++
		}
	}
	for _, id := range obs.Reserved {
		f.claims[id]++
	}
	isExclusive := func(id int) bool { return exclusive[id] }
	isClaimed := func(id int) bool { return f.claims[id] > 0 }
	for _, cpus := range obs.Topology.Cores() {
		c := core{cpus: cpus, owner: free}
		if slices.ContainsFunc(cpus, isClaimed) {
			c.owner = unusable
		}
		if !slices.ContainsFunc(cpus, isExclusive) {
			f.open++
		}
		f.cores = append(f.cores, c)
	}
	slices.SortFunc(f.cores, func(a, b core) int {
		return cmp.Or(cmp.Compare(len(b.cpus), len(a.cpus)), cmp.Compare(b.cpus[0], a.cpus[0]))
	})
	f.makePools(obs.Topology)
	return f
}

func (f *fences) makePools(top topology.Topology) {
	type place struct{ llc, node int }
	index := map[place]int{}
	for i := range f.cores {
		cpu, _ := top.Lookup(f.cores[i].cpus[0])
		at := place{cpu.LLC, cpu.Node}
		p, seen := index[at]
		if !seen {
			p = len(f.pools)
			index[at] = p
			f.pools = append(f.pools, pool{node: cpu.Node})
		}
		f.cores[i].pool = p
		f.pools[p].cores = append(f.pools[p].cores, i)
	}
	var each [][]int
	var all []int
	nodes := make([][]int, len(f.pools)) // by the first pool of a node
	for p := range f.pools {
		each = append(each, []int{p})
		first := slices.IndexFunc(f.pools, func(q pool) bool { return q.node == f.pools[p].node })
		nodes[first] = append(nodes[first], p)
		all = append(all, p)
	}
	f.levels = [][][]int{each, slices.DeleteFunc(nodes, func(n []int) bool { return n == nil }), {all}}
}

// plan gives the groups that want them their fences, the older groups first.
func (f *fences) plan(prev Plan, groups []Group, wanted []demand) {
	before := map[uint64][]int{}
	for i := range prev.Groups {
		if g := &prev.Groups[i]; len(g.Fence) > 0 {
			before[g.ID] = g.Fence
		}
	}
	for _, d := range wanted {
		f.keep(d, before[groups[d.group].ID])
	}
	for i := range wanted {
		groups[wanted[i].group].NotFenced = f.place(wanted, i)
	}
	for _, c := range f.cores {
		if c.owner >= 0 {
			groups[c.owner].Fence = append(groups[c.owner].Fence, c.cpus...)
		}
	}
	for _, d := range wanted {
		slices.Sort(groups[d.group].Fence)
	}
}

// keep claims what can stay of the fence that a group has, as far as it needs it.
func (f *fences) keep(d demand, fence []int) {
	if len(fence) == 0 {
		return
	}
	had := make(map[int]bool, len(fence))
	for _, id := range fence {
		had[id] = true
	}
	need := d.cpus
	for i, c := range f.cores {
		if need <= 0 || f.fenced >= f.open-1 {
			return
		}
		if c.owner != free || slices.ContainsFunc(c.cpus, func(id int) bool { return !had[id] }) {
			continue
		}
		f.cores[i].owner = d.group
		f.fenced++
		need -= len(c.cpus)
	}
}

// place gives the group of wanted[i] its fence, if need be at the cost of newer
// ones, the newest first. It returns why it could not.
func (f *fences) place(wanted []demand, i int) (why string) {
	d := wanted[i]
	if f.extend(d) {
		return ""
	}
	if left := f.left(d.group); left < d.cpus {
		f.release(d.group)
		return fmt.Sprintf("it needs %s in whole cores, %s left: older critical pods, reserved and exclusive CPUs "+
			"and one core for the rest of the node come first", cpus(d.cpus), remaining(left))
	}
	for j := len(wanted) - 1; j >= i; j-- {
		// At last its own: what it kept may be smaller cores than it can have.
		if f.release(wanted[j].group) && f.extend(d) {
			return ""
		}
	}
	return ""
}

func cpus(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

// left is how many CPUs a group could have if it and the newer ones had none.
func (f *fences) left(group int) int {
	spare, n := f.open-1, 0
	for _, c := range f.cores {
		if c.owner >= 0 && c.owner < group {
			spare--
		}
	}
	for _, c := range f.cores {
		if spare > 0 && (c.owner == free || c.owner >= group) {
			spare--
			n += len(c.cpus)
		}
	}
	return n
}

// release takes a group's cores away and reports whether it had any.
func (f *fences) release(group int) bool {
	had := false
	for i := range f.cores {
		if f.cores[i].owner == group {
			f.cores[i].owner = free
			f.fenced--
			had = true
		}
	}
	return had
}

// extend adds cores to a group's until they are enough, or changes nothing.
func (f *fences) extend(d demand) bool {
	need, home := d.cpus, -1
	for _, c := range f.cores {
		if c.owner == d.group {
			need -= len(c.cpus)
			home = c.pool
		}
	}
	if need <= 0 || f.fenced+1 >= f.open {
		return need <= 0
	}
	added, enough := f.take(f.nearby(home, need), need)
	if !enough {
		// Too many cores or too few CPUs: then the largest cores, wherever they are.
		all := make([]int, len(f.cores))
		for i := range all {
			all[i] = i
		}
		if added, enough = f.take(all, need); !enough {
			return false
		}
	}
	for _, i := range added {
		f.cores[i].owner = d.group
		f.fenced++
	}
	f.trim(d)
	return true
}

// take returns the first free ones of these cores that have enough CPUs.
func (f *fences) take(from []int, need int) (taken []int, enough bool) {
	for _, i := range from {
		if need <= 0 {
			break
		}
		if f.cores[i].owner == free {
			taken = append(taken, i)
			need -= len(f.cores[i].cpus)
		}
	}
	return taken, need <= 0 && f.fenced+len(taken) < f.open
}

// trim gives back the cores that a group can do without: those of mixed sizes
// may have added up to more than it needs.
func (f *fences) trim(d demand) {
	need := d.cpus
	for i, c := range f.cores {
		if c.owner != d.group {
			continue
		}
		if need <= 0 {
			f.cores[i].owner = free
			f.fenced--
		}
		need -= len(c.cpus)
	}
}

// nearby returns cores that lie near each other and near the pool home, if
// there is one (-1: none), in the order in which to take them: those of the
// fullest cache that has need CPUs free, else of the fullest node, else all.
func (f *fences) nearby(home, need int) []int {
	room := make([]int, len(f.pools)) // free CPUs
	for p := range f.pools {
		for _, i := range f.pools[p].cores {
			if f.cores[i].owner == free {
				room[p] += len(f.cores[i].cpus)
			}
		}
	}
	pools := slices.Clone(f.smallest(room, home, need))
	slices.SortFunc(pools, func(a, b int) int {
		return cmp.Or(cmp.Compare(f.distance(a, home), f.distance(b, home)),
			cmp.Compare(f.pools[b].node, f.pools[a].node), cmp.Compare(room[b], room[a]), cmp.Compare(a, b))
	})
	var near []int
	for _, p := range pools {
		near = append(near, f.pools[p].cores...)
	}
	return near
}

// smallest returns the narrowest domain with need CPUs free; of those the one
// nearest to home, then the fullest, so that large holes stay whole.
func (f *fences) smallest(room []int, home, need int) []int {
	for _, domains := range f.levels {
		var best []int
		var bestAway, bestRoom int
		for _, pools := range domains {
			away, n := math.MaxInt, 0
			for _, p := range pools {
				away = min(away, f.distance(p, home))
				n += room[p]
			}
			if n >= need && (best == nil || away < bestAway || away == bestAway && n < bestRoom) {
				best, bestAway, bestRoom = pools, away, n
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// distance is 0 in the pool home, 1 on its node, 2 elsewhere, 0 without a home.
func (f *fences) distance(p, home int) int {
	switch {
	case home < 0 || p == home:
		return 0
	case f.pools[p].node == f.pools[home].node:
		return 1
	}
	return 2
}
