// SPDX-License-Identifier: Apache-2.0

// Package topology describes a node's CPUs: which are online, which share a
// core, a last-level cache and a NUMA node.
//
// Read takes sysfs as an fs.FS, so that captured trees of other machines can
// be tested. Beyond that it does no I/O.
package topology

// CPU is one logical CPU. Core, LLC and Node are dense numbers over the whole
// machine, not the kernel's per-package ids.
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
