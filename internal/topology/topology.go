// SPDX-License-Identifier: Apache-2.0

// Package topology describes a node's CPUs: which are online, which share a
// core, a last-level cache and a NUMA node.
//
// Read takes sysfs as an fs.FS, so that captured trees of other machines can
// be tested. Beyond that it does no I/O.
package topology

import (
	"cmp"
	"slices"
)

// CPU is one logical CPU. Core, LLC and Node are dense numbers over the whole
// machine, not the kernel's per-package ids.
//
// The kernel hides where an offline CPU sits, so until it is read again online
// it counts as a core of its own in LLC 0 and node 0.
type CPU struct {
	ID     int  `json:"id"`
	Core   int  `json:"core"`
	LLC    int  `json:"llc"`
	Node   int  `json:"node"`
	Online bool `json:"online"`
}

// Topology is a machine's CPUs, ascending by ID.
type Topology struct {
	CPUs []CPU `json:"cpus"`
}

// Lookup returns the CPU with that id. Ids may have gaps.
func (t Topology) Lookup(id int) (CPU, bool) {
	i, found := slices.BinarySearchFunc(t.CPUs, id, func(c CPU, id int) int { return cmp.Compare(c.ID, id) })
	if !found {
		return CPU{}, false
	}
	return t.CPUs[i], true
}

// Online returns the ids of the online CPUs, ascending.
func (t Topology) Online() []int {
	var ids []int
	for _, c := range t.CPUs {
		if c.Online {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Cores returns the online CPUs of each core, in order of each core's lowest
// CPU. Cores without an online CPU are left out.
func (t Topology) Cores() [][]int {
	var cores [][]int
	index := map[int]int{}
	for _, c := range t.CPUs {
		if !c.Online {
			continue
		}
		i, seen := index[c.Core]
		if !seen {
			i = len(cores)
			index[c.Core] = i
			cores = append(cores, nil)
		}
		cores[i] = append(cores[i], c.ID)
	}
	return cores
}

// Siblings returns the online CPUs that share id's core, id included. It is
// empty for a CPU that is absent or offline.
func (t Topology) Siblings(id int) []int {
	self, found := t.Lookup(id)
	if !found || !self.Online {
		return nil
	}
	var ids []int
	for _, c := range t.CPUs {
		if c.Online && c.Core == self.Core {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Missing returns the online CPUs that cpus lacks to be made of whole cores,
// ascending. CPUs that are absent or offline are ignored.
func (t Topology) Missing(cpus []int) []int {
	var missing []int
	for _, id := range cpus {
		for _, sibling := range t.Siblings(id) {
			if !slices.Contains(cpus, sibling) && !slices.Contains(missing, sibling) {
				missing = append(missing, sibling)
			}
		}
	}
	slices.Sort(missing)
	return missing
}
