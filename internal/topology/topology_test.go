// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// machine writes a sysfs tree as kernels lay it out.
type machine struct {
	threads [][]int // CPUs of each core
	llcs    [][]int // CPUs of each last-level cache; nil: no cache directories
	level   string  // of that cache, "3" if empty
	nodes   [][]int // CPUs of each NUMA node; nil: no node directories
	offline []int   // present, without topology
}

func (m machine) tree() fstest.MapFS {
	sys := fstest.MapFS{}
	write := func(text, path string, args ...any) {
		sys[fmt.Sprintf(path, args...)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	var online []int
	for core, cpus := range m.threads {
		online = append(online, cpus...)
		for _, id := range cpus {
			write(FormatList(cpus), "cpu/cpu%d/topology/thread_siblings_list", id)
			write(strconv.Itoa(core%4), "cpu/cpu%d/topology/core_id", id) // repeats, as between packages
			write("0", "cpu/cpu%d/topology/physical_package_id", id)
		}
	}
	for _, id := range m.offline {
		write("0", "cpu/cpu%d/online", id)
	}
	level := m.level
	if level == "" {
		level = "3"
	}
	for _, cpus := range m.llcs {
		for _, id := range cpus {
			write("1", "cpu/cpu%d/cache/index0/level", id)
			write(strconv.Itoa(id), "cpu/cpu%d/cache/index0/shared_cpu_list", id)
			write(level, "cpu/cpu%d/cache/index3/level", id)
			write(FormatList(cpus), "cpu/cpu%d/cache/index3/shared_cpu_list", id)
		}
	}
	for node, cpus := range m.nodes {
		write(FormatList(cpus), "node/node%d/cpulist", node)
	}
	slices.Sort(online)
	write(FormatList(online), "cpu/online")
	for _, noise := range []string{"cpufreq/x", "cpuidle/x", "possible", "smt/active"} {
		write("", "cpu/%s", noise)
	}
	return sys
}

// summary is one line per CPU: "id core/llc/node", or "id off".
func summary(t Topology) []string {
	var lines []string
	for _, c := range t.CPUs {
		if c.Online {
			lines = append(lines, fmt.Sprintf("%d %d/%d/%d", c.ID, c.Core, c.LLC, c.Node))
		} else {
			lines = append(lines, fmt.Sprintf("%d off", c.ID))
		}
	}
	return lines
}

func TestRead(t *testing.T) {
	bare := machine{threads: [][]int{{0}, {1}}}.tree()
	maps.DeleteFunc(bare, func(name string, _ *fstest.MapFile) bool {
		return name == "cpu/online" || name == "cpu/cpu0/topology/thread_siblings_list" || name == "cpu/cpu1/topology/thread_siblings_list"
	})
	moreThanTopology := machine{threads: [][]int{{0}}}.tree()
	moreThanTopology["cpu/cpu0/topology/core_cpus_list"] = &fstest.MapFile{Data: []byte("0\n")}
	moreThanTopology["cpu/cpu0/topology/thread_siblings_list"] = &fstest.MapFile{Data: []byte("7\n")}
	cases := map[string]struct {
		sys  fs.FS
		want []string
	}{
		"no SMT, one cache": {
			machine{threads: [][]int{{0}, {1}}, llcs: [][]int{{0, 1}}, nodes: [][]int{{0, 1}}}.tree(),
			[]string{"0 0/0/0", "1 1/0/0"},
		},
		"SMT siblings are neighbours": {
			machine{threads: [][]int{{0, 1}, {2, 3}}, llcs: [][]int{{0, 1, 2, 3}}}.tree(),
			[]string{"0 0/0/0", "1 0/0/0", "2 1/0/0", "3 1/0/0"},
		},
		"SMT siblings are half the machine apart": {
			machine{threads: [][]int{{0, 2}, {1, 3}}, llcs: [][]int{{0, 1, 2, 3}}}.tree(),
			[]string{"0 0/0/0", "1 1/0/0", "2 0/0/0", "3 1/0/0"},
		},
		"two NUMA nodes, two caches each": {
			machine{
				threads: [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
				llcs:    [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
				nodes:   [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}},
			}.tree(),
			[]string{"0 0/0/0", "1 1/0/0", "2 2/1/0", "3 3/1/0", "4 4/2/1", "5 5/2/1", "6 6/3/1", "7 7/3/1"},
		},
		"interleaved nodes, one of memory only": {
			machine{threads: [][]int{{0}, {1}, {2}}, nodes: [][]int{{0, 2}, nil, {1}}}.tree(),
			[]string{"0 0/0/0", "1 1/0/1", "2 2/0/0"},
		},
		"an offline CPU is a core of its own": {
			machine{threads: [][]int{{0}, {2, 3}}, offline: []int{1}, llcs: [][]int{{0, 2, 3}}}.tree(),
			[]string{"0 0/0/0", "1 off", "2 1/0/0", "3 1/0/0"},
		},
		"sparse ids": {
			machine{threads: [][]int{{0, 64}, {8, 72}}, llcs: [][]int{{0, 8, 64, 72}}}.tree(),
			[]string{"0 0/0/0", "8 1/0/0", "64 0/0/0", "72 1/0/0"},
		},
		"hybrid: SMT cores beside single ones, clusters without level 3": {
			machine{threads: [][]int{{0, 1}, {2}, {3}}, llcs: [][]int{{0, 1}, {2, 3}}, level: "2"}.tree(),
			[]string{"0 0/0/0", "1 0/0/0", "2 1/1/0", "3 2/1/0"},
		},
		"no cache, node, online or sibling files":            {bare, []string{"0 0/0/0", "1 1/0/0"}},
		"core_cpus_list before a stale thread_siblings_list": {moreThanTopology, []string{"0 0/0/0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Read(c.sys)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, summary(got)); diff != "" {
				t.Errorf("id core/llc/node (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadLargeMachine(t *testing.T) {
	var m machine
	for core := range 128 {
		m.threads = append(m.threads, []int{core, core + 128})
	}
	for first := 0; first < 128; first += 8 {
		var llc []int
		for id := first; id < first+8; id++ {
			llc = append(llc, id)
		}
		for id := first; id < first+8; id++ {
			llc = append(llc, id+128)
		}
		m.llcs = append(m.llcs, llc)
	}
	top, err := Read(m.tree())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(top.Cores()); n != 128 {
		t.Errorf("%d cores, want 128", n)
	}
	if c, _ := top.Lookup(255); c.Core != 127 || c.LLC != 15 {
		t.Errorf("CPU 255 = %+v, want core 127, LLC 15", c)
	}
	if diff := cmp.Diff([]int{5, 133}, top.Siblings(133)); diff != "" {
		t.Error(diff)
	}
}

func TestReadRefusesWhatIsNoSysfs(t *testing.T) {
	for name, sys := range map[string]fs.FS{
		"empty":        fstest.MapFS{},
		"no CPU":       fstest.MapFS{"cpu/online": {Data: []byte("0\n")}},
		"garbled list": fstest.MapFS{"cpu/online": {Data: []byte("zero\n")}, "cpu/cpu0/uevent": {}},
	} {
		if _, err := Read(sys); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReadThisMachine(t *testing.T) {
	top, err := Read(os.DirFS(Root))
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Online()) == 0 || len(top.Cores()) == 0 {
		t.Errorf("nothing online: %+v", top)
	}
}

func TestMissing(t *testing.T) {
	top, err := Read(machine{threads: [][]int{{0, 4}, {1, 5}, {2}}, offline: []int{3}}.tree())
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct{ cpus, want []int }{
		{nil, nil},
		{[]int{0, 4}, nil},
		{[]int{0}, []int{4}},
		{[]int{2, 5, 4}, []int{0, 1}},
		{[]int{3, 99}, nil},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, top.Missing(c.cpus)); diff != "" {
			t.Errorf("Missing(%v): %s", c.cpus, diff)
		}
	}
}

// TestReadCaptured reads trees of real machines.
func TestReadCaptured(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured trees: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sys := fstest.MapFS{}
			for _, f := range archive.Files {
				sys[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			top, err := Read(sys)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(summary(top), "\n") + "\n"
			if diff := cmp.Diff(string(sys["want"].Data), got); diff != "" {
				t.Errorf("id core/llc/node (-want +got):\n%s", diff)
			}
		})
	}
}
