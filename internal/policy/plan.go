// SPDX-License-Identifier: Apache-2.0

// Package policy decides how the pods of one node share its CPUs.
//
// It is the pure half of the engine: it maps what was observed to what should
// hold, and imports nothing that could read a file, a clock or the API server.
package policy

import (
	"fmt"

	"github.com/temper-sched/temper/internal/tier"
)

// Lend says when the idle CPUs of a fence may run lower tiers.
type Lend uint8

// The lending policies. docs/design/0002 has the measurements behind the default.
const (
	LendPerCore    Lend = iota // any idle CPU; background not beside a critical thread on a core
	LendLanding                // one CPU, or one whole core with SMT, stays free while the pod is busy
	LendWholeLayer             // only while the pod is idle on all its CPUs
)

var lendNames = [...]string{"per-core", "landing", "whole-layer"}

// String returns the policy's name as plans spell it.
func (l Lend) String() string {
	if int(l) < len(lendNames) {
		return lendNames[l]
	}
	return fmt.Sprintf("lend(%d)", uint8(l))
}

// ParseLend returns the lending policy called name.
func ParseLend(name string) (Lend, error) {
	for i, n := range lendNames {
		if n == name {
			return Lend(i), nil
		}
	}
	return 0, fmt.Errorf("unknown lending policy %q: one of per-core, landing, whole-layer", name)
}

// MarshalText makes policies appear by name in JSON and YAML.
func (l Lend) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (l *Lend) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLend(string(text))
	return err
}

// Plan is everything the kernel side needs to know: which cgroup belongs to
// which tier, and which CPUs are fenced for whom. It is applied whole.
type Plan struct {
	Lend Lend `json:"lend"`
	// CPUMax is looked at before the plan is applied: the kernel side does not
	// know it, and plans read back have none.
	CPUMax CPUMax  `json:"cpu_max,omitempty"`
	Groups []Group `json:"groups"`
}

// Group assigns a cgroup and everything below it to a tier. The deepest group
// that holds a thread decides for it.
type Group struct {
	// Cgroup is the path below the cgroup mount, "/kubepods/burstable/pod1".
	Cgroup string `json:"cgroup"`
	// ID is the cgroup's inode number, which is how the kernel knows it.
	ID uint64 `json:"id"`
	// Tier is the rank of its threads.
	Tier tier.Tier `json:"tier"`
	// EachChild makes every child cgroup, present and future, a group of its
	// own: each gets its own share of the tier by its own cpu.weight.
	EachChild bool `json:"each_child,omitempty"`
	// Fence lists the CPUs planned for the group: whole cores, ascending, none
	// shared with another group. Only critical groups have one.
	Fence []int `json:"fence,omitempty"`
	// NotFenced says why a fence that was asked for was not planned.
	NotFenced string `json:"not_fenced,omitempty"`
}
