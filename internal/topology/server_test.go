// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// server is a machine of equal cores. CPUs are numbered as firmware does it on
// x86: the first thread of every core, then the second of every core.
type server struct {
	cores   int
	threads int // of each core
	caches  int // last-level caches, of equal size
	nodes   int // of equal size
	offline []int
	stride  int // between ids; 1 if 0
}

func (s server) tree() fstest.MapFS {
	stride := max(s.stride, 1)
	m := machine{offline: s.offline, llcs: make([][]int, s.caches), nodes: make([][]int, s.nodes)}
	for core := range s.cores {
		var online []int
		for thread := range s.threads {
			if id := (core + thread*s.cores) * stride; !slices.Contains(s.offline, id) {
				online = append(online, id)
			}
		}
		if len(online) == 0 {
			continue
		}
		m.threads = append(m.threads, online)
		llc, node := core*s.caches/s.cores, core*s.nodes/s.cores
		m.llcs[llc] = append(m.llcs[llc], online...)
		m.nodes[node] = append(m.nodes[node], online...)
	}
	// The kernel's lists ascend, whatever the order in which CPUs came up.
	for _, lists := range [][][]int{m.llcs, m.nodes} {
		for _, list := range lists {
			slices.Sort(list)
		}
	}
	return m.tree()
}

func TestReadServers(t *testing.T) {
	for name, c := range map[string]struct {
		server
		cpus     int
		siblings map[int]string
		places   map[int]string // core/llc/node
	}{
		"one node without SMT": {
			server{cores: 8, threads: 1, caches: 1, nodes: 1},
			8,
			map[int]string{0: "0", 7: "7"},
			map[int]string{7: "7/0/0"},
		},
		"one node with SMT": {
			server{cores: 4, threads: 2, caches: 1, nodes: 1},
			8,
			map[int]string{1: "1,5", 5: "1,5"},
			map[int]string{5: "1/0/0"},
		},
		"two nodes with SMT": {
			server{cores: 32, threads: 2, caches: 2, nodes: 2},
			64,
			map[int]string{31: "31,63", 32: "0,32"},
			map[int]string{32: "0/0/0", 63: "31/1/1"},
		},
		"three nodes": {
			server{cores: 12, threads: 1, caches: 3, nodes: 3},
			12,
			map[int]string{4: "4"},
			map[int]string{3: "3/0/0", 4: "4/1/1", 11: "11/2/2"},
		},
		"four nodes of one socket, two caches each": {
			server{cores: 64, threads: 2, caches: 8, nodes: 4},
			128,
			map[int]string{127: "63,127"},
			map[int]string{8: "8/1/0", 16: "16/2/1", 127: "63/7/3"},
		},
		"four nodes share a cache by twos": {
			server{cores: 8, threads: 1, caches: 2, nodes: 4},
			8,
			map[int]string{2: "2"},
			map[int]string{1: "1/0/0", 2: "2/0/1", 7: "7/1/3"},
		},
		"256 CPUs, two sockets, sixteen caches": {
			server{cores: 128, threads: 2, caches: 16, nodes: 2},
			256,
			map[int]string{0: "0,128", 255: "127,255"},
			map[int]string{63: "63/7/0", 64: "64/8/1", 128: "0/0/0", 255: "127/15/1"},
		},
		"one sibling and one whole core offline": {
			server{cores: 4, threads: 2, caches: 2, nodes: 2, offline: []int{5, 2, 6}},
			5,
			map[int]string{1: "1", 5: "", 2: "", 3: "3,7"},
			map[int]string{1: "1/0/0", 3: "2/1/1", 7: "2/1/1"},
		},
		"sparse ids": {
			server{cores: 4, threads: 2, caches: 2, nodes: 1, stride: 16},
			8,
			map[int]string{16: "16,80", 112: "48,112", 1: ""},
			map[int]string{112: "3/1/0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := Read(c.tree())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(top.Online()); n != c.cpus {
				t.Errorf("%d CPUs online, want %d", n, c.cpus)
			}
			for id, want := range c.siblings {
				if got := FormatList(top.Siblings(id)); got != want {
					t.Errorf("siblings of CPU %d: %q, want %q", id, got, want)
				}
			}
			for id, want := range c.places {
				cpu, _ := top.Lookup(id)
				if got := fmt.Sprintf("%d/%d/%d", cpu.Core, cpu.LLC, cpu.Node); got != want {
					t.Errorf("CPU %d is core/llc/node %s, want %s", id, got, want)
				}
			}
		})
	}
}

// TestReadHybrid: a desktop chip, two fast cores with two threads and four slow
// ones that share a level-2 cache; all share level 3. The fast cores' own level
// 2 must not pass for the last level, and core ids are far apart.
func TestReadHybrid(t *testing.T) {
	sys := fstest.MapFS{}
	put := func(text, format string, args ...any) {
		sys[fmt.Sprintf(format, args...)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	for id, cpu := range []struct{ core, siblings, level2 string }{
		{"0", "0-1", "0-1"},
		{"0", "0-1", "0-1"},
		{"4", "2-3", "2-3"},
		{"4", "2-3", "2-3"},
		{"8", "4", "4-7"},
		{"9", "5", "4-7"},
		{"10", "6", "4-7"},
		{"11", "7", "4-7"},
	} {
		dir := fmt.Sprintf("cpu/cpu%d", id)
		put(cpu.core, "%s/topology/core_id", dir)
		put("0", "%s/topology/physical_package_id", dir)
		put(cpu.siblings, "%s/topology/core_cpus_list", dir)
		put(cpu.siblings, "%s/topology/thread_siblings_list", dir)
		for index, cache := range []struct{ level, kind, shared string }{
			{"1", "Data", cpu.siblings},
			{"1", "Instruction", cpu.siblings},
			{"2", "Unified", cpu.level2},
			{"3", "Unified", "0-7"},
		} {
			put(cache.level, "%s/cache/index%d/level", dir, index)
			put(cache.kind, "%s/cache/index%d/type", dir, index)
			put(cache.shared, "%s/cache/index%d/shared_cpu_list", dir, index)
		}
	}
	put("0-7", "cpu/online")
	put("0-3", "cpu_core/cpus") // where the kernel lists the two kinds
	put("4-7", "cpu_atom/cpus")
	put("0-7", "node/node0/cpulist")
	top, err := Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0 0/0/0", "1 0/0/0", "2 1/0/0", "3 1/0/0", "4 2/0/0", "5 3/0/0", "6 4/0/0", "7 5/0/0"}
	if diff := cmp.Diff(want, summary(top)); diff != "" {
		t.Errorf("id core/llc/node (-want +got):\n%s", diff)
	}
}
