// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/temper-sched/temper/internal/topology"
)

// ReadCpusets fills in the pods' containers and the CPUs that these may use. It
// reads a file for each container: not for every turn of a loop. Containers
// that vanish meanwhile, or are hidden, are left out.
func (t *Tree) ReadCpusets(k Kubepods, pods []PodCgroup) error {
	all, err := t.cpus(path.Join(local(k.Root), "cpuset.cpus.effective"))
	if vanished(err) {
		return nil // no cpuset controller, no cpusets
	}
	if err != nil {
		return fmt.Errorf("read CPUs of pods: %w", err)
	}
	for i := range pods {
		if err := t.readCpusets(&pods[i], all); err != nil {
			return fmt.Errorf("read CPUs of pod %s: %w", pods[i].UID, err)
		}
	}
	return nil
}

func (t *Tree) readCpusets(p *PodCgroup, all []int) error {
	p.Containers, p.CPUs = nil, nil
	names, err := t.children(local(p.Path))
	if err != nil {
		return err
	}
	for _, name := range names {
		c := ContainerCgroup{Path: path.Join(p.Path, name)}
		c.CPUs, err = t.cpus(path.Join(local(c.Path), "cpuset.cpus"))
		if IsGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		// The kernel keeps CPUs in a cpuset that went offline.
		c.CPUs = slices.DeleteFunc(c.CPUs, func(id int) bool { return !contains(all, id) })
		if len(c.CPUs) == len(all) {
			c.CPUs = nil
		}
		p.Containers = append(p.Containers, c)
		p.CPUs = append(p.CPUs, c.CPUs...)
	}
	slices.Sort(p.CPUs)
	p.CPUs = slices.Compact(p.CPUs)
	return nil
}

func contains(ascending []int, id int) bool {
	_, found := slices.BinarySearch(ascending, id)
	return found
}

func (t *Tree) cpus(file string) ([]int, error) {
	text, err := fs.ReadFile(t.fsys, file)
	if err != nil {
		return nil, err
	}
	return topology.ParseList(string(text))
}

// ExclusiveCPUs returns the CPUs that kubelet's static CPU manager gave to one
// pod alone, by the pod's UID. ReadCpusets comes first.
//
// No file that the agent may read says so; it is inferred. The manager takes
// a container's CPUs out of the pool that it writes into the cpusets of all
// other containers. So once a pool is seen, CPUs that several pods may use, a
// container whose CPUs no other pod's container may use has them alone.
// Without a pool nothing tells it from a container that is alone in the pool,
// and until the manager has taken the CPUs from the others, which it does every
// 10 s, it does not have them alone yet.
func ExclusiveCPUs(pods []PodCgroup) map[string][]int {
	users := map[int]int{} // pods by CPU
	pool := false
	for _, p := range pods {
		for _, id := range p.CPUs {
			users[id]++
			pool = pool || users[id] > 1
		}
	}
	exclusive := map[string][]int{}
	if !pool {
		return exclusive
	}
	for _, p := range pods {
		var own []int
		for _, c := range p.Containers {
			if !slices.ContainsFunc(c.CPUs, func(id int) bool { return users[id] > 1 }) {
				own = append(own, c.CPUs...)
			}
		}
		if len(own) > 0 {
			slices.Sort(own)
			exclusive[p.UID] = slices.Compact(own)
		}
	}
	return exclusive
}
