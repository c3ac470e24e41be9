// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Root is where sysfs describes CPUs and nodes; os.DirFS(Root) is what Read
// expects on a live machine.
const Root = "/sys/devices/system"

// Read returns the topology that sys describes, a tree like /sys/devices/system.
//
// What a kernel does not tell gets the safe reading: a CPU without sibling
// lists is a core of its own, one without cache directories shares its LLC with
// its package, and without node directories there is one NUMA node.
func Read(sys fs.FS) (Topology, error) {
	ids, err := numbered(sys, "cpu", "cpu")
	if err != nil {
		return Topology{}, fmt.Errorf("read CPU directories: %w", err)
	}
	if len(ids) == 0 {
		return Topology{}, errors.New("read CPU directories: no cpu[0-9]* below cpu/")
	}
	online, err := readOnline(sys, ids)
	if err != nil {
		return Topology{}, err
	}
	nodes, err := readNodes(sys)
	if err != nil {
		return Topology{}, err
	}
	var t Topology
	cores, llcs := numbering{}, numbering{}
	for _, id := range ids {
		cpu := CPU{ID: id, Online: online[id]}
		if cpu.Online {
			cpu.Core = cores.number(coreKey(sys, id))
			cpu.LLC = llcs.number(llcKey(sys, id))
			cpu.Node = nodes[id]
		}
		t.CPUs = append(t.CPUs, cpu)
	}
	for i := range t.CPUs {
		if !t.CPUs[i].Online {
			t.CPUs[i].Core = cores.number(fmt.Sprintf("offline %d", t.CPUs[i].ID))
		}
	}
	return t, nil
}

// numbering gives keys dense numbers in order of first use.
type numbering map[string]int

func (n numbering) number(key string) int {
	i, seen := n[key]
	if !seen {
		i = len(n)
		n[key] = i
	}
	return i
}

// numbered returns N of every entry prefixN in dir, ascending.
func numbered(sys fs.FS, dir, prefix string) ([]int, error) {
	entries, err := fs.ReadDir(sys, dir)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, e := range entries {
		digits, found := strings.CutPrefix(e.Name(), prefix)
		if !found {
			continue // "possible", "smt", …
		}
		id, err := parseID(digits)
		if err != nil {
			continue // "cpufreq", "cpuidle", …
		}
		ids = append(ids, id)
	}
	return sortUnique(ids), nil
}

// readOnline falls back to "all of them" where the kernel has no hotplug and
// so no such file.
func readOnline(sys fs.FS, ids []int) (map[int]bool, error) {
	online := map[int]bool{}
	list, err := readList(sys, "cpu/online")
	if errors.Is(err, fs.ErrNotExist) {
		list, err = ids, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read online CPUs: %w", err)
	}
	for _, id := range list {
		online[id] = true
	}
	return online, nil
}

// readNodes maps CPU ids to dense node numbers. Nodes of memory only take no number.
func readNodes(sys fs.FS) (map[int]int, error) {
	nodes := map[int]int{}
	ids, err := numbered(sys, "node", "node")
	if errors.Is(err, fs.ErrNotExist) {
		return nodes, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NUMA nodes: %w", err)
	}
	next := 0
	for _, id := range ids {
		cpus, err := readList(sys, path.Join("node", "node"+strconv.Itoa(id), "cpulist"))
		if err != nil {
			return nil, fmt.Errorf("read CPUs of NUMA node %d: %w", id, err)
		}
		for _, cpu := range cpus {
			nodes[cpu] = next
		}
		if len(cpus) > 0 {
			next++
		}
	}
	return nodes, nil
}

// coreKey names the core of an online CPU. Sibling lists come first because
// core_id repeats between packages, dies and, on some hypervisors, everywhere.
func coreKey(sys fs.FS, id int) string {
	dir := path.Join("cpu", "cpu"+strconv.Itoa(id), "topology")
	for _, file := range []string{"core_cpus_list", "thread_siblings_list"} {
		if key, found := shared(sys, path.Join(dir, file), id); found {
			return "cpus " + key
		}
	}
	core, err := fs.ReadFile(sys, path.Join(dir, "core_id"))
	if err != nil {
		return "cpu " + strconv.Itoa(id)
	}
	return "core " + packageKey(sys, id) + " " + strings.TrimSpace(string(core))
}

// llcKey names the last-level cache of an online CPU: on hybrid machines the
// highest level differs between CPUs.
func llcKey(sys fs.FS, id int) string {
	dir := path.Join("cpu", "cpu"+strconv.Itoa(id), "cache")
	indexes, err := numbered(sys, dir, "index")
	if err != nil {
		return packageKey(sys, id)
	}
	best, bestLevel := packageKey(sys, id), 1 // a private level 1 cache is not a domain
	for _, index := range indexes {
		cache := path.Join(dir, "index"+strconv.Itoa(index))
		level, err := readInt(sys, path.Join(cache, "level"))
		if err != nil || level <= bestLevel {
			continue
		}
		if key, found := shared(sys, path.Join(cache, "shared_cpu_list"), id); found {
			best, bestLevel = "cache "+key, level
		}
	}
	return best
}

func packageKey(sys fs.FS, id int) string {
	dir := path.Join("cpu", "cpu"+strconv.Itoa(id), "topology")
	pkg, err := fs.ReadFile(sys, path.Join(dir, "physical_package_id"))
	if err != nil {
		return "package 0"
	}
	return "package " + strings.TrimSpace(string(pkg))
}

// shared returns the CPU list in file in canonical form, if id is in it.
func shared(sys fs.FS, file string, id int) (string, bool) {
	list, err := readList(sys, file)
	if err != nil || !slices.Contains(list, id) {
		return "", false
	}
	return FormatList(list), true
}

func readList(sys fs.FS, file string) ([]int, error) {
	text, err := fs.ReadFile(sys, file)
	if err != nil {
		return nil, err
	}
	return ParseList(string(text))
}

func readInt(sys fs.FS, file string) (int, error) {
	text, err := fs.ReadFile(sys, file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
