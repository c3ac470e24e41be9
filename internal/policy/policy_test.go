// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// smt is a machine of cores with two threads each: core n has CPUs 2n and 2n+1.
func smt(cores int) topology.Topology {
	var top topology.Topology
	for id := range 2 * cores {
		top.CPUs = append(top.CPUs, topology.CPU{ID: id, Core: id / 2, Online: true})
	}
	return top
}

func critical(cgroup string, fence ...int) Group {
	return Group{Cgroup: cgroup, Tier: tier.Critical, Fence: fence}
}

func TestValidate(t *testing.T) {
	offline := smt(3)
	offline.CPUs[5].Online = false
	cases := map[string]struct {
		top    topology.Topology
		groups []Group
		want   []string // "index field reason"
	}{
		"a plan without problems": {smt(4), []Group{
			critical("/a", 0, 1), critical("/b", 2, 3, 4, 5), {Cgroup: "/c", Tier: tier.Background, EachChild: true},
		}, nil},
		"nothing at all": {smt(1), nil, nil},
		"paths": {smt(1), []Group{
			{Cgroup: ""}, {Cgroup: "a"}, {Cgroup: "/"}, {Cgroup: "/a/"}, {Cgroup: "/a//b"}, {Cgroup: "/a/../b"}, {Cgroup: "/./a"}, {Cgroup: "/a\x00b"}, {Cgroup: "/*/b"},
		}, []string{
			`0 cgroup cgroup "" is empty`,
			`1 cgroup cgroup "a" is not absolute: write it from the cgroup mount down, starting with a slash`,
			`2 cgroup cgroup "/" is the root, which holds the kernel's own threads and is always system`,
			`3 cgroup cgroup "/a/" ends in a slash`,
			`4 cgroup cgroup "/a//b" has an empty element`,
			`5 cgroup cgroup "/a/../b" has an element "..": write the path it leads to`,
			`6 cgroup cgroup "/./a" has an element ".": write the path it leads to`,
			`7 cgroup cgroup "/a\x00b" contains a control character`,
			`8 cgroup cgroup "/*/b" has a "*" that is not its last element`,
		}},
		"a cgroup twice": {smt(1), []Group{
			critical("/a"), {Cgroup: "/a", Tier: tier.Standard, EachChild: true}, {Cgroup: "/a/b"},
		}, []string{"1 cgroup /a and /a/* are the same cgroup: name it once"}},
		"a tier that is none": {smt(1), []Group{{Cgroup: "/a", Tier: 9}}, []string{"0 tier unknown tier 9"}},
		"fences of the wrong groups": {smt(2), []Group{
			{Cgroup: "/a", Tier: tier.Standard, Fence: []int{0, 1}},
			{Cgroup: "/b", Tier: tier.Critical, EachChild: true, Fence: []int{2, 3}},
		}, []string{
			"0 fence a standard group cannot have a fence: only critical ones can",
			"1 fence a fence belongs to one cgroup, /b/* names many",
		}},
		"a fence that splits cores": {smt(4), []Group{critical("/a", 0, 1, 3, 4)}, []string{
			"0 fence fence 0-1,3-4 splits a core: a fence is whole cores, add CPU 2,5",
		}},
		"absent and offline CPUs": {offline, []Group{critical("/a", 4, 5, 6, 7)}, []string{
			"0 fence this node has no CPU 6-7, it has 0-4",
			"0 fence CPU 5 is offline",
		}},
		"overlapping fences": {smt(4), []Group{
			critical("/a", 0, 1, 2, 3), critical("/b", 4, 5), critical("/c", 2, 3, 4, 5),
		}, []string{
			"2 fence fences overlap: CPU 2-3 is in the fence of /a",
			"2 fence fences overlap: CPU 4-5 is in the fence of /b",
		}},
		"a fence out of order": {smt(4), []Group{critical("/a", 1, 0), critical("/b", 2, 2, 3)}, []string{
			"0 fence fence [1 0] is not ascending without repeats",
			"1 fence fence [2 2 3] is not ascending without repeats",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range Validate(Plan{Groups: c.groups}, c.top) {
				got = append(got, fmt.Sprintf("%d %s %s", p.Group, p.Field, p.Reason))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFit(t *testing.T) {
	cases := map[string]struct {
		top    topology.Topology
		groups []Group
		want   []string // NotFenced of each group
	}{
		"all fit":                  {smt(3), []Group{critical("/a", 0, 1), critical("/b", 2, 3)}, []string{"", ""}},
		"the newest does not fit":  {smt(2), []Group{critical("/a", 0, 1), critical("/b", 2, 3)}, []string{"", "fence 2-3 needs 1 core, 0 are left of 2: one stays with the rest of the node"}},
		"a smaller one still does": {smt(3), []Group{critical("/a", 0, 1, 2, 3, 4, 5), critical("/b", 2, 3)}, []string{"fence 0-5 needs 3 cores, 2 are left of 3: one stays with the rest of the node", ""}},
		"a single core":            {smt(1), []Group{critical("/a", 0, 1)}, []string{"fence 0-1 needs 1 core, 0 are left of 1: one stays with the rest of the node"}},
		"no fence asked for":       {smt(1), []Group{critical("/a")}, []string{""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := Plan{Lend: LendLanding, Groups: c.groups}
			var got []string
			for i, g := range Fit(p, c.top).Groups {
				got = append(got, g.NotFenced)
				if fenced := len(g.Fence) > 0; fenced != (g.NotFenced == "" && len(c.groups[i].Fence) > 0) {
					t.Errorf("%s: fence %v, not fenced %q", g.Cgroup, g.Fence, g.NotFenced)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFitLeavesItsArgument: the plan as written must not lose its fences.
func TestFitLeavesItsArgument(t *testing.T) {
	p := Plan{Groups: []Group{critical("/a", 0, 1)}}
	Fit(p, smt(1))
	if len(p.Groups[0].Fence) != 2 {
		t.Errorf("Fit changed its argument: %+v", p.Groups[0])
	}
}

func TestDiffLines(t *testing.T) {
	prev := Plan{Groups: []Group{{ID: 1, Cgroup: "/a"}, {ID: 2, Tier: tier.Standard}, {ID: 3, Cgroup: "/gone", EachChild: true}}}
	next := Plan{Lend: LendLanding, Groups: []Group{
		{ID: 4, Cgroup: "/new", Tier: tier.Background, EachChild: true},
		{ID: 1, Cgroup: "/a", Fence: []int{0, 1}},
		{ID: 2, Cgroup: "/same", Tier: tier.Standard},
		{ID: 5, Cgroup: "/small", NotFenced: "no room"},
	}}
	want := []string{
		"lend landing",
		"remove /gone/*",
		"set /a: critical, fence 0-1",
		"set /new/*: background",
		"set /small: critical, not fenced",
	}
	var got []string
	for _, op := range Diff(prev, next) {
		got = append(got, op.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if ops := Diff(next, next); len(ops) != 0 {
		t.Errorf("Diff of equal plans = %v", ops)
	}
}

// replay carries out ops, which only tests do.
func replay(p Plan, ops []Op) Plan {
	groups := byID(p.Groups)
	for _, op := range ops {
		switch op.Kind {
		case OpLend:
			p.Lend = op.Lend
		case OpRemove:
			delete(groups, op.Group.ID)
		case OpSet:
			groups[op.Group.ID] = &op.Group
		}
	}
	p.Groups = nil
	for _, g := range groups {
		p.Groups = append(p.Groups, *g)
	}
	p.Groups = byPath(p.Groups)
	return p
}

func byPath(groups []Group) []Group {
	return slices.SortedFunc(slices.Values(groups), func(a, b Group) int { return strings.Compare(a.Cgroup, b.Cgroup) })
}

func randomPlan(r *rand.Rand) Plan {
	p := Plan{Lend: Lend(r.IntN(3))}
	for _, id := range r.Perm(6)[:r.IntN(7)] {
		g := Group{ID: uint64(id), Cgroup: fmt.Sprintf("/%d", id), Tier: tier.Tier(r.IntN(tier.Count)), EachChild: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			g.Fence = []int{2 * id, 2*id + 1}
		}
		p.Groups = append(p.Groups, g)
	}
	return p
}

func FuzzDiffReplays(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		prev, next := randomPlan(r), randomPlan(r)
		got := replay(prev, Diff(prev, next))
		next.Groups = byPath(next.Groups)
		if diff := cmp.Diff(next, got); diff != "" {
			t.Errorf("replaying Diff(%+v, %+v) (-want +got):\n%s", prev, next, diff)
		}
	})
}
