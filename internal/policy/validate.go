// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// Field is the part of a group that a problem is about, spelled as in plan files.
type Field string

// The fields of a group.
const (
	FieldCgroup Field = "cgroup"
	FieldTier   Field = "tier"
	FieldFence  Field = "fence"
)

// Problem is why a plan cannot be applied.
type Problem struct {
	Group  int // index into Plan.Groups
	Field  Field
	Reason string
}

// Validate returns every reason why p cannot be applied to a node with top's
// CPUs, in the order of its groups. A plan without problems can be applied.
func Validate(p Plan, top topology.Topology) []Problem {
	v := validator{top: top, cgroups: map[string]Group{}, fenced: map[int]string{}}
	for i, g := range p.Groups {
		v.index = i
		v.cgroup(g)
		v.tier(g)
		v.fence(g)
	}
	return v.problems
}

type validator struct {
	top      topology.Topology
	cgroups  map[string]Group // by path, those seen so far
	fenced   map[int]string   // CPU to the cgroup whose fence has it
	index    int
	problems []Problem
}

func (v *validator) add(f Field, format string, args ...any) {
	v.problems = append(v.problems, Problem{Group: v.index, Field: f, Reason: fmt.Sprintf(format, args...)})
}

func (v *validator) cgroup(g Group) {
	if reason := badPath(g.Cgroup); reason != "" {
		v.add(FieldCgroup, "cgroup %q %s", g.Cgroup, reason)
		return
	}
	if earlier, seen := v.cgroups[g.Cgroup]; seen {
		v.add(FieldCgroup, "%s and %s are the same cgroup: name it once", spell(earlier), spell(g))
		return
	}
	v.cgroups[g.Cgroup] = g
}

// spell returns the group's cgroup as plan files write it.
func spell(g Group) string {
	if g.EachChild {
		return g.Cgroup + "/*"
	}
	return g.Cgroup
}

// badPath says what is wrong with a cgroup path, "" if nothing.
func badPath(path string) string {
	switch {
	case path == "":
		return "is empty"
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "contains a control character"
	case path[0] != '/':
		return "is not absolute: write it from the cgroup mount down, starting with a slash"
	case path == "/":
		return "is the root, which holds the kernel's own threads and is always system"
	case strings.HasSuffix(path, "/"):
		return "ends in a slash"
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		switch {
		case name == "":
			return "has an empty element"
		case name == "." || name == "..":
			return fmt.Sprintf("has an element %q: write the path it leads to", name)
		case strings.Contains(name, "*"):
			return `has a "*" that is not its last element`
		}
	}
	return ""
}

func (v *validator) tier(g Group) {
	if int(g.Tier) >= tier.Count {
		v.add(FieldTier, "unknown tier %d", uint8(g.Tier))
	}
}

func (v *validator) fence(g Group) {
	if len(g.Fence) == 0 {
		return
	}
	if g.Tier != tier.Critical {
		v.add(FieldFence, "a %s group cannot have a fence: only critical ones can", g.Tier)
	}
	if g.EachChild {
		v.add(FieldFence, "a fence belongs to one cgroup, %s/* names many", g.Cgroup)
	}
	if !slices.IsSorted(g.Fence) || len(slices.Compact(slices.Clone(g.Fence))) != len(g.Fence) {
		v.add(FieldFence, "fence %v is not ascending without repeats", g.Fence)
		return
	}
	v.presence(g.Fence)
	if missing := v.top.Missing(g.Fence); len(missing) > 0 {
		v.add(FieldFence, "fence %s splits a core: a fence is whole cores, add CPU %s",
			topology.FormatList(g.Fence), topology.FormatList(missing))
	}
	v.overlap(g)
}

func (v *validator) presence(cpus []int) {
	var absent, offline []int
	for _, id := range cpus {
		cpu, found := v.top.Lookup(id)
		switch {
		case !found:
			absent = append(absent, id)
		case !cpu.Online:
			offline = append(offline, id)
		}
	}
	if len(absent) > 0 {
		v.add(FieldFence, "this node has no CPU %s, it has %s",
			topology.FormatList(absent), topology.FormatList(v.top.Online()))
	}
	if len(offline) > 0 {
		v.add(FieldFence, "CPU %s is offline", topology.FormatList(offline))
	}
}

func (v *validator) overlap(g Group) {
	shared := map[string][]int{}
	var owners []string
	for _, id := range g.Fence {
		owner, taken := v.fenced[id]
		if !taken {
			v.fenced[id] = spell(g)
			continue
		}
		if shared[owner] == nil {
			owners = append(owners, owner)
		}
		shared[owner] = append(shared[owner], id)
	}
	for _, owner := range owners {
		v.add(FieldFence, "fences overlap: CPU %s is in the fence of %s", topology.FormatList(shared[owner]), owner)
	}
}
