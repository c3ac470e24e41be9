// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readPods returns the pods of a hierarchy below /kubepods with their cpusets.
func readPods(t *testing.T, tree *Tree) ([]PodCgroup, error) {
	t.Helper()
	k := Kubepods{Driver: "cgroupfs", Root: "/kubepods"}
	pods, err := tree.Pods(k)
	if err != nil {
		t.Fatal(err)
	}
	return pods, tree.ReadCpusets(k, pods)
}

func TestReadCpusets(t *testing.T) {
	tree, _ := hierarchy(t, "kubepods 0-3,5",
		"kubepods/poda", "kubepods/poda/app 2-4", "kubepods/poda/pause ", "kubepods/poda/sidecar 0-1",
		"kubepods/podb", "kubepods/podb/app 0-5", "kubepods/podc")
	pods, err := readPods(t, tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []PodCgroup{
		{UID: "a", Path: "/kubepods/poda", ID: 11, CPUs: []int{0, 1, 2, 3}, Containers: []ContainerCgroup{
			{Path: "/kubepods/poda/app", CPUs: []int{2, 3}},
			{Path: "/kubepods/poda/pause"},
			{Path: "/kubepods/poda/sidecar", CPUs: []int{0, 1}},
		}},
		{UID: "b", Path: "/kubepods/podb", ID: 15, Containers: []ContainerCgroup{{Path: "/kubepods/podb/app"}}},
		{UID: "c", Path: "/kubepods/podc", ID: 17},
	}
	if diff := cmp.Diff(want, pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadCpusetsThatAreNotThere(t *testing.T) {
	tree, fsys := hierarchy(t, "kubepods 0-3", "kubepods/poda", "kubepods/poda/app 0-1")
	fsys["kubepods/poda/app/cpuset.cpus"] = text("many\n")
	if _, err := readPods(t, tree); err == nil || !strings.Contains(err.Error(), "read CPUs of pod a: parse CPU list") {
		t.Errorf("a garbled cpuset: %v", err)
	}
	tree.fsys = removing{fsys, "kubepods/poda/app/cpuset.cpus", fs.ErrNotExist}
	if pods, err := readPods(t, tree); err != nil || len(pods) != 1 || len(pods[0].Containers) != 0 {
		t.Errorf("a container that is gone: %v, %v", pods, err)
	}
	tree.fsys = removing{fsys, "kubepods/cpuset.cpus.effective", fs.ErrNotExist}
	if pods, err := readPods(t, tree); err != nil || pods[0].Containers != nil {
		t.Errorf("no cpuset controller: %v, %v", pods, err)
	}
}

func TestExclusiveCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		cgroups []string // below /kubepods, which has CPUs 0-7
		want    map[string][]int
	}{
		"no CPU manager": {[]string{"poda/app ", "podb/app ", "podc/app "}, nil},
		"the manager gave nothing away": {
			[]string{"poda/app 0-7", "podb/app 0-7"}, nil,
		},
		"one has its own": {
			[]string{"poda/app 2-3", "poda/pause ", "podb/app 0-1,4-7", "podc/app 0-1,4-7"}, map[string][]int{"a": {2, 3}},
		},
		"beside a container in the pool": {
			[]string{"poda/app 2-3", "poda/log 0-1,4-7", "podb/app 0-1,4-7"}, map[string][]int{"a": {2, 3}},
		},
		"two containers of a pod, two pods": {
			[]string{"poda/app 2", "poda/db 3", "podd/app 6-7", "podb/app 0-1,4-5", "podc/app 0-1,4-5"},
			map[string][]int{"a": {2, 3}, "d": {6, 7}},
		},
		"the others have its CPUs still": {
			[]string{"poda/app 2-3", "podb/app 0-6", "podc/app 0-6"}, nil,
		},
		"one of the others has them still": {
			[]string{"poda/app 2-3", "podb/app 0-1,4-7", "podc/app 0-6"}, nil,
		},
		"nobody tells it from the only one in the pool": {
			[]string{"poda/app 2-3", "podb/app 0-1,4-7"}, nil,
		},
		"a pool of one CPU": {
			[]string{"poda/app 1-3", "podd/app 4-7", "podb/app 0", "podc/app 0"}, map[string][]int{"a": {1, 2, 3}, "d": {4, 5, 6, 7}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := []string{"kubepods 0-7"}
			for _, line := range c.cgroups {
				lines = append(lines, "kubepods/"+line)
			}
			// The pods themselves are directories without a line of their own.
			tree, fsys := hierarchy(t, lines...)
			for i, uid := range []string{"poda", "podb", "podc", "podd"} {
				fsys["kubepods/"+uid] = dir(uint64(100 + i))
			}
			pods, err := readPods(t, tree)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				c.want = map[string][]int{}
			}
			if diff := cmp.Diff(c.want, ExclusiveCPUs(pods)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
