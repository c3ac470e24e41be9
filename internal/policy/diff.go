// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/topology"
)

// Op is one difference between two plans. Plans are applied whole, never op by
// op: ops say in dry runs and logs what applying a plan changes.
type Op struct {
	Kind  OpKind
	Group Group // of OpSet as it shall be, of OpRemove as it was
	Lend  Lend  // of OpLend
}

// OpKind is what an op does.
type OpKind string

// The kinds of ops.
const (
	OpSet    OpKind = "set"    // a new group, or one that changed
	OpRemove OpKind = "remove" // the cgroup falls to its parent's group, or to system
	OpLend   OpKind = "lend"
)

// String returns the op as one line for people.
func (o Op) String() string {
	switch o.Kind {
	case OpLend:
		return "lend " + o.Lend.String()
	case OpRemove:
		return "remove " + groupName(o.Group)
	}
	line := fmt.Sprintf("set %s: %s", groupName(o.Group), o.Group.Tier)
	if len(o.Group.Fence) > 0 {
		line += ", fence " + topology.FormatList(o.Group.Fence)
	}
	if o.Group.NotFenced != "" {
		line += ", not fenced"
	}
	return line
}

// groupName falls back to the id: a plan read back from the kernel has no paths.
func groupName(g Group) string {
	if g.Cgroup == "" {
		return fmt.Sprintf("cgroup %d", g.ID)
	}
	return spell(g)
}

// Diff returns the ops that turn prev into next: removals first, each kind
// ordered by cgroup, so that logs are stable. Groups are the same group when
// they have the same cgroup id, wherever they stand in the file.
func Diff(prev, next Plan) []Op {
	var ops []Op
	if prev.Lend != next.Lend {
		ops = append(ops, Op{Kind: OpLend, Lend: next.Lend})
	}
	// An agent compares two plans of hundreds of groups for each pod that comes or
	// goes: only what differs is looked up and put in order.
	prev.Groups, next.Groups = unlike(prev.Groups, next.Groups)
	before, after := byID(prev.Groups), byID(next.Groups)
	var removed, set []Op
	for _, g := range prev.Groups {
		if after[g.ID] == nil {
			removed = append(removed, Op{Kind: OpRemove, Group: g})
		}
	}
	for _, g := range next.Groups {
		if old := before[g.ID]; old == nil || !sameGroup(old, &g) {
			set = append(set, Op{Kind: OpSet, Group: g})
		}
	}
	return slices.Concat(ops, ordered(removed), ordered(set))
}

// unlike leaves out the groups that both begin with or both end with.
func unlike(a, b []Group) (restA, restB []Group) {
	same := func(x, y *Group) bool { return x.ID == y.ID && sameGroup(x, y) }
	for len(a) > 0 && len(b) > 0 && same(&a[0], &b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && same(&a[len(a)-1], &b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

func byID(groups []Group) map[uint64]*Group {
	m := make(map[uint64]*Group, len(groups))
	for i := range groups {
		m[groups[i].ID] = &groups[i]
	}
	return m
}

func ordered(ops []Op) []Op {
	slices.SortFunc(ops, func(a, b Op) int {
		return cmp.Or(strings.Compare(a.Group.Cgroup, b.Group.Cgroup), cmp.Compare(a.Group.ID, b.Group.ID))
	})
	return ops
}

// sameGroup compares what the kernel acts on. The path does not count: it is
// absent in plans read back, and the id stands for it.
func sameGroup(a, b *Group) bool {
	return a.Tier == b.Tier && a.EachChild == b.EachChild && slices.Equal(a.Fence, b.Fence)
}
