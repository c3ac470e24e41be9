// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

const (
	uidA   = "0b0f5ab5-3cdb-4d0c-9a53-6b1f4b2f7a10"
	uidB   = "7d8f2f0e-5f0e-4bb3-8f4e-2f1a7c3b9d21"
	static = "3f8a1c0d9e7b6a5f4c3d2e1f0a9b8c7d" // a manifest's hash
)

// hierarchy makes cgroups of paths, each with the next inode number from 10 on.
// "path cpus" states a cpuset; a path with a "!" holds processes.
func hierarchy(t *testing.T, lines ...string) (*Tree, fstest.MapFS) {
	t.Helper()
	fsys := fstest.MapFS{".": dir(1), "cgroup.controllers": text("cpuset cpu\n"), "kubepods.slice.d": text("no cgroup")}
	for i, line := range lines {
		name, cpus, hasCpus := strings.Cut(line, " ")
		name, busy := strings.CutSuffix(name, "!")
		fsys[name] = dir(uint64(10 + i))
		if busy {
			fsys[path.Join(name, "cgroup.events")] = text("populated 1\nfrozen 0\n")
		} else {
			fsys[path.Join(name, "cgroup.events")] = text("populated 0\nfrozen 0\n")
		}
		if hasCpus {
			fsys[path.Join(name, "cpuset.cpus")] = text(cpus + "\n")
			fsys[path.Join(name, "cpuset.cpus.effective")] = text(cpus + "\n")
		}
	}
	tree, err := New(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree, fsys
}

func TestKubepods(t *testing.T) {
	for name, c := range map[string]struct {
		cgroups []string
		want    Kubepods
	}{
		"cgroupfs": {
			[]string{"init.scope!", "kubepods!", "kubepods/besteffort", "kubepods/burstable!", "system.slice!"},
			Kubepods{"cgroupfs", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"},
		},
		"systemd": {
			[]string{"kubepods.slice!", "kubepods.slice/kubepods-besteffort.slice", "kubepods.slice/kubepods-burstable.slice!"},
			Kubepods{
				"systemd", "/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice",
				"/kubepods.slice/kubepods-besteffort.slice",
			},
		},
		"kind, from its node": {
			[]string{"init.scope!", "kubelet!", "kubelet/kubepods!", "kubelet/kubepods/burstable!"},
			Kubepods{"cgroupfs", "/kubelet/kubepods", "/kubelet/kubepods/burstable", ""},
		},
		"kind with systemd, from its node": {
			[]string{"kubelet.slice!", "kubelet.slice/kubelet-kubepods.slice!", "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"},
			Kubepods{
				"systemd", "/kubelet.slice/kubelet-kubepods.slice", "",
				"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice",
			},
		},
		"kind, from its host": {
			[]string{
				"system.slice!", "system.slice/docker-1f.scope!", "system.slice/docker-1f.scope/kubelet.slice!",
				"system.slice/docker-1f.scope/kubelet.slice/kubelet-kubepods.slice!",
			},
			Kubepods{"systemd", "/system.slice/docker-1f.scope/kubelet.slice/kubelet-kubepods.slice", "", ""},
		},
		"left over by another driver": {
			[]string{"kubepods", "kubepods/burstable", "kubepods.slice!"}, Kubepods{"systemd", "/kubepods.slice", "", ""},
		},
		"left over, and the others deeper": {
			[]string{"kubepods", "kubelet!", "kubelet/kubepods!"}, Kubepods{"cgroupfs", "/kubelet/kubepods", "", ""},
		},
		"without a pod yet": {
			[]string{"kubepods", "kubepods/burstable"}, Kubepods{"cgroupfs", "/kubepods", "/kubepods/burstable", ""},
		},
		"a pod holds a kubelet": {
			[]string{"kubepods!", "kubepods/pod" + uidA + "!", "kubepods/pod" + uidA + "/kubepods!"},
			Kubepods{"cgroupfs", "/kubepods", "", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := hierarchy(t, c.cgroups...)
			got, err := tree.Kubepods()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoKubepods(t *testing.T) {
	for name, cgroups := range map[string][]string{
		"no Kubernetes":  {"system.slice!", "user.slice!"},
		"names alike":    {"kubepods-burstable.slice!", "kubepods2!", "mykubepods!", "kubepods.scope!"},
		"below too many": {"a!", "a/b!", "a/b/c!", "a/b/c/d!", "a/b/c/d/kubepods!"},
	} {
		tree, _ := hierarchy(t, cgroups...)
		if k, err := tree.Kubepods(); !errors.Is(err, ErrNoKubepods) {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	tree, fsys := hierarchy(t, "kubepods", "kubepods/burstable", "kubepods/besteffort")
	k, err := tree.Kubepods()
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.Defaults(tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Group{
		{Cgroup: "/kubepods", ID: 10, Tier: tier.Standard, EachChild: true},
		{Cgroup: "/kubepods/burstable", ID: 11, Tier: tier.Standard, EachChild: true},
		{Cgroup: "/kubepods/besteffort", ID: 12, Tier: tier.Background, EachChild: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name := range fsys {
		if strings.HasPrefix(name, "kubepods/burstable") {
			delete(fsys, name)
		}
	}
	if _, err := k.Defaults(tree); !IsGone(err) {
		t.Errorf("a parent that is gone: %v", err)
	}
}

func TestPods(t *testing.T) {
	under := strings.ReplaceAll(uidB, "-", "_")
	for name, c := range map[string]struct {
		cgroups []string
		want    []PodCgroup
	}{
		"cgroupfs": {
			[]string{
				"kubepods!", "kubepods/burstable!", "kubepods/besteffort!", "kubepods/pod" + uidA, "kubepods/pod" + uidA + "/1f",
				"kubepods/burstable/pod" + static, "kubepods/besteffort/pod" + uidB, "kubepods/besteffort/other",
			},
			[]PodCgroup{
				{UID: uidA, Path: "/kubepods/pod" + uidA, ID: 13},
				{UID: static, Path: "/kubepods/burstable/pod" + static, ID: 15},
				{UID: uidB, Path: "/kubepods/besteffort/pod" + uidB, ID: 16},
			},
		},
		"systemd": {
			[]string{
				"kubepods.slice!", "kubepods.slice/kubepods-burstable.slice!",
				"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice",
				"kubepods.slice/kubepods-pod" + static + ".slice",
			},
			[]PodCgroup{
				{UID: static, Path: "/kubepods.slice/kubepods-pod" + static + ".slice", ID: 13},
				{UID: uidB, Path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice", ID: 12},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := hierarchy(t, c.cgroups...)
			k, err := tree.Kubepods()
			if err != nil {
				t.Fatal(err)
			}
			got, err := tree.Pods(k)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// stale is a hierarchy whose listing still has a cgroup that is gone.
type stale struct {
	fstest.MapFS
	name string
}

func (s stale) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == s.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENODEV}
	}
	entries, err := s.MapFS.ReadDir(name)
	for i, e := range entries {
		if path.Join(name, e.Name()) == s.name {
			entries[i] = goneEntry{e}
		}
	}
	return entries, err
}

type goneEntry struct{ fs.DirEntry }

func (goneEntry) Info() (fs.FileInfo, error) { return nil, fs.ErrNotExist }

func TestPodsWhileTheyVanish(t *testing.T) {
	for gone, want := range map[string]int{"kubepods/burstable/pod" + uidA: 2, "kubepods/burstable": 1} {
		tree, fsys := hierarchy(t, "kubepods!", "kubepods/burstable", "kubepods/burstable/pod"+uidA, "kubepods/burstable/pod"+uidB, "kubepods/pod"+static)
		k, err := tree.Kubepods()
		if err != nil {
			t.Fatal(err)
		}
		tree.fsys = stale{fsys, gone}
		if pods, err := tree.Pods(k); err != nil || len(pods) != want {
			t.Errorf("%s is gone: %v, %v; want %d pods", gone, pods, err, want)
		}
	}
}

func TestParsePodName(t *testing.T) {
	under := strings.ReplaceAll(uidA, "-", "_")
	for name, want := range map[string]string{
		"pod" + uidA:   uidA,
		"pod" + static: static,
		"kubepods-burstable-pod" + under + ".slice":          uidA,
		"kubepods-besteffort-pod" + under + ".slice":         uidA,
		"kubepods-pod" + static + ".slice":                   static,
		"kubelet-kubepods-pod" + under + ".slice":            uidA,
		"kubelet-kubepods-burstable-pod" + static + ".slice": static,
		"":                               "",
		"pod":                            "",
		"pod../..":                       "",
		"pod" + under:                    "", // escaped, but of no slice
		"pod" + strings.Repeat("a", 129): "",
		"kubepods-burstable.slice":       "",
		"kubepods-burstable-pod.slice":   "",
		"kubepods-burstable-pod" + uidA + ".slice": "", // not escaped
		"kubepods-burstable-pod" + under:           "",
		"user-pod" + under + ".slice":              "",
		"mykubepods-pod" + under + ".slice":        "",
		"kubepods-pod" + under + ".scope":          "",
		"burstable":                                "",
		"cri-containerd-" + static + ".scope":      "",
	} {
		if uid, ok := ParsePodName(name); ok != (want != "") || ok && uid != want {
			t.Errorf("%q: %q, %v; want %q", name, uid, ok, want)
		}
	}
}

// FuzzParsePodName: a UID is harmless, and names tell pods apart.
func FuzzParsePodName(f *testing.F) {
	for _, name := range []string{"pod" + uidA, "kubepods-burstable-pod0b0f_1.slice", "kubelet-kubepods-pod1.slice", "pod", "-pod.slice", "pod\x00", "podé"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		uid, ok := ParsePodName(name)
		if !ok {
			return
		}
		if uid == "" || len(uid) > longestUID || strings.ContainsAny(uid, "/._ \n\x00") {
			t.Fatalf("%q: UID %q", name, uid)
		}
		if name != "pod"+uid && !strings.HasSuffix(name, "kubepods-pod"+strings.ReplaceAll(uid, "-", "_")+".slice") &&
			!strings.HasSuffix(name, "-pod"+strings.ReplaceAll(uid, "-", "_")+".slice") {
			t.Fatalf("%q is not the name for UID %q", name, uid)
		}
	})
}

// fullNode has as many pods as a node may have, of two containers each.
func fullNode(t testing.TB) (*Tree, Kubepods) {
	t.Helper()
	fsys := fstest.MapFS{
		".": dir(1), "cgroup.controllers": text("cpuset cpu\n"), "kubepods/burstable": dir(3),
		"kubepods": dir(2), "kubepods/cpuset.cpus.effective": text("0-255\n"),
	}
	for n := range 250 {
		name := fmt.Sprintf("kubepods/burstable/pod%032x", n)
		fsys[name] = dir(uint64(100 + n))
		for _, c := range []string{"/a", "/b"} {
			fsys[name+c] = dir(uint64(1000 + n))
			fsys[name+c+"/cpuset.cpus"] = text("0-99,104-255\n")
		}
	}
	tree, err := New(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree, Kubepods{Driver: "cgroupfs", Root: "/kubepods", Burstable: "/kubepods/burstable"}
}

func TestFullNode(t *testing.T) {
	tree, k := fullNode(t)
	pods, err := tree.Pods(k)
	if err != nil || len(pods) != 250 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	if err := tree.ReadCpusets(k, pods); err != nil || len(pods[249].CPUs) != 252 {
		t.Fatalf("%d CPUs, %v", len(pods[249].CPUs), err)
	}
}
