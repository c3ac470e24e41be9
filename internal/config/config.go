// SPDX-License-Identifier: Apache-2.0

// Package config reads plan files, YAML that says which cgroup belongs to which
// tier and which CPUs are fenced for it, and the node agent's configuration.
//
// A file is taken whole or refused whole, with every error found in it, each
// with its file and line. The package opens nothing itself.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/topology"
)

// MaxSize is the size above which a file is refused unread. 110 pods make
// about 15 KiB.
const MaxSize = 1 << 20

// Error is one reason why a file is refused.
type Error struct {
	File   string
	Line   int // 0 if the reason is the file itself
	Reason string
}

// Error returns "file:line: reason", which editors can jump to.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// Cgroups finds cgroups on the node.
type Cgroups interface {
	// ID returns the id of the cgroup at path, or an error that says why not.
	ID(path string) (uint64, error)
}

// Node is what a plan is checked against.
type Node struct {
	Topology topology.Topology
	Cgroups  Cgroups
}

// Parse returns the plan that the file called name holds in data, as it may be
// applied to node: ids filled in, and fences that do not fit left out with
// NotFenced set. The error joins an *Error for everything wrong with the file,
// in the order of its lines.
func Parse(name string, data []byte, node Node) (policy.Plan, error) {
	d := decoder{file: name, what: "plan", empty: "name at least one cgroup under groups"}
	d.decode(data)
	d.validate(node.Topology)
	d.resolve(node.Cgroups)
	if err := d.err(); err != nil {
		return policy.Plan{}, err
	}
	return policy.Fit(d.plan, node.Topology), nil
}

// validate leaves out what only follows from an error already reported.
func (d *decoder) validate(top topology.Topology) {
	for _, p := range policy.Validate(d.plan, top) {
		at := &d.places[p.Group]
		if at.bad[p.Field] {
			continue
		}
		d.add(at.line(p.Field), "%s", p.Reason)
		at.noCgroup = at.noCgroup || p.Field == policy.FieldCgroup
	}
}

// resolve fills in the ids of the cgroups whose paths are sound.
func (d *decoder) resolve(cgroups Cgroups) {
	for i := range d.plan.Groups {
		g, at := &d.plan.Groups[i], d.places[i]
		if at.bad[policy.FieldCgroup] || at.noCgroup {
			continue
		}
		id, err := cgroups.ID(g.Cgroup)
		if err != nil {
			d.add(at.line(policy.FieldCgroup), "%s", err)
			continue
		}
		g.ID = id
	}
}

// place is where the fields of a group stand, for errors found later.
type place struct {
	group    int // line of the group itself
	lines    map[policy.Field]int
	bad      map[policy.Field]bool // did not decode: what follows from that is noise
	noCgroup bool                  // the path is not one: do not look for it
}

func (p place) line(f policy.Field) int { return cmp.Or(p.lines[f], p.group) }

func (d *decoder) add(line int, format string, args ...any) {
	d.errs = append(d.errs, &Error{File: d.file, Line: line, Reason: fmt.Sprintf(format, args...)})
}

func (d *decoder) err() error {
	slices.SortStableFunc(d.errs, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, len(d.errs))
	for i, e := range d.errs {
		errs[i] = e
	}
	return errors.Join(errs...)
}
