// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"strconv"
	"strings"
)

// maxCPUs bounds a topology: more vCPUs than this boot for minutes under
// emulation.
const maxCPUs = 64

// Topology is the shape of a machine's CPUs. Each socket is a NUMA node and a
// last-level cache.
type Topology struct {
	Sockets, Cores, Threads int
}

// ParseTopology reads sockets, cores per socket and threads per core as in
// "2s4c2t". The spelling is strict, so that a name is a key.
func ParseTopology(s string) (Topology, error) {
	var t Topology
	rest := s
	for _, f := range []struct {
		unit byte
		n    *int
	}{{'s', &t.Sockets}, {'c', &t.Cores}, {'t', &t.Threads}} {
		digits, after, ok := strings.Cut(rest, string(f.unit))
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 1 || n > maxCPUs || strconv.Itoa(n) != digits {
			return Topology{}, fmt.Errorf("parse topology %q: want sockets, cores per socket, threads per core, as in 1s4c1t", s)
		}
		*f.n, rest = n, after
	}
	if rest != "" {
		return Topology{}, fmt.Errorf("parse topology %q: unexpected %q at the end", s, rest)
	}
	if t.Threads > 2 {
		return Topology{}, fmt.Errorf("parse topology %q: at most 2 threads per core", s)
	}
	if t.CPUs() > maxCPUs {
		return Topology{}, fmt.Errorf("parse topology %q: %d CPUs, at most %d", s, t.CPUs(), maxCPUs)
	}
	return t, nil
}

// CPUs is the number of logical CPUs.
func (t Topology) CPUs() int { return t.Sockets * t.Cores * t.Threads }

// String is the name that ParseTopology reads.
func (t Topology) String() string {
	return fmt.Sprintf("%ds%dc%dt", t.Sockets, t.Cores, t.Threads)
}

// args are QEMU's arguments for these CPUs and for memoryMB of memory.
func (t Topology) args(memoryMB int) []string {
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
