// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"strconv"

	"github.com/temper-sched/temper/internal/topology"
)

// maxCPUs bounds a topology: more vCPUs than this boot for minutes under
// emulation.
const maxCPUs = 64

// Topology is the shape of a machine's CPUs. Each socket is a NUMA node and a
// last-level cache.
type Topology = topology.Shape

// ParseTopology reads a shape that a guest can have.
func ParseTopology(name string) (Topology, error) {
	t, err := topology.ParseShape(name)
	switch {
	case err != nil:
		return t, fmt.Errorf("parse topology %w", err)
	case t.Threads > 2:
		return Topology{}, fmt.Errorf("parse topology %q: at most 2 threads per core", name)
	case t.CPUs() > maxCPUs:
		return Topology{}, fmt.Errorf("parse topology %q: %d CPUs, at most %d", name, t.CPUs(), maxCPUs)
	}
	return t, nil
}

// topologyArgs are QEMU's arguments for these CPUs and for memoryMB of memory.
func topologyArgs(t Topology, memoryMB int) []string {
	a := []string{
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=%d", t.CPUs(), t.Sockets, t.Cores, t.Threads),
		"-m", strconv.Itoa(memoryMB) + "M",
	}
	if t.Sockets == 1 {
		return a
	}
	share := memoryMB / t.Sockets
	for s := range t.Sockets {
		size := share
		if s == t.Sockets-1 {
			size = memoryMB - share*(t.Sockets-1)
		}
		a = append(a, "-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", s, size),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d", s, s),
			"-numa", fmt.Sprintf("cpu,node-id=%d,socket-id=%d", s, s))
	}
	return a
}
