// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// Kubepods is where kubelet keeps the cgroups of a node's pods. Guaranteed pods
// are children of the root, others of its two QoS cgroups.
type Kubepods struct {
	Driver     string // of kubelet and the runtime: "cgroupfs" or "systemd"
	Root       string
	Burstable  string // "" if there is none
	BestEffort string // "" if there is none
}

// deepest is how many cgroups are looked at from the root down: kind's node is
// a container, /system.slice/docker-….scope/kubelet.slice/kubelet-kubepods.slice.
const deepest = 4

// Kubepods finds the cgroups of pods by their names, not by kubelet's
// configuration. Of several, those nearest to the root that hold processes are
// kubelet's: another driver may have left its own behind, and a pod may hold a
// kubelet with pods. The error is ErrNoKubepods where there are none.
func (t *Tree) Kubepods() (Kubepods, error) {
	empty, level := "", []string{"."}
	for range deepest {
		var below []string
		for _, parent := range level {
			names, err := t.children(parent)
			if err != nil {
				return Kubepods{}, fmt.Errorf("find cgroups of pods: %w", err)
			}
			for _, name := range names {
				dir := path.Join(parent, name)
				switch {
				case !isKubepods(name):
					below = append(below, dir)
				case t.populated(dir):
					return t.kubepods(dir), nil
				case empty == "":
					empty = dir
				}
			}
		}
		level = below
	}
	if empty == "" {
		return Kubepods{}, ErrNoKubepods
	}
	return t.kubepods(empty), nil
}

func isKubepods(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
}

// children returns the names of the cgroups below one, none if it is gone or hidden.
func (t *Tree) children(dir string) ([]string, error) {
	entries, err := fs.ReadDir(t.fsys, dir)
	if IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// populated tells whether a process is in the cgroup or below.
func (t *Tree) populated(dir string) bool {
	events, err := fs.ReadFile(t.fsys, path.Join(dir, "cgroup.events"))
	return err == nil && strings.Contains(string(events), "populated 1")
}

func (t *Tree) kubepods(root string) Kubepods {
	k := Kubepods{Driver: "cgroupfs", Root: path.Join("/", root)}
	burstable, bestEffort := path.Join(root, "burstable"), path.Join(root, "besteffort")
	if stem, isSlice := strings.CutSuffix(path.Base(root), ".slice"); isSlice {
		k.Driver = "systemd"
		burstable, bestEffort = path.Join(root, stem+"-burstable.slice"), path.Join(root, stem+"-besteffort.slice")
	}
	if t.isDir(burstable) {
		k.Burstable = path.Join("/", burstable)
	}
	if t.isDir(bestEffort) {
		k.BestEffort = path.Join("/", bestEffort)
	}
	return k
}

func (t *Tree) isDir(name string) bool {
	info, err := fs.Stat(t.fsys, name)
	return err == nil && info.IsDir()
}

// Parents returns the cgroups that pods are children of.
func (k Kubepods) Parents() []string {
	return slices.DeleteFunc([]string{k.Root, k.Burstable, k.BestEffort}, func(p string) bool { return p == "" })
}

// Defaults returns the groups that give pods their tier until somebody has
// heard of them. Each pod is a group of its own in them; a pod that a plan
// names is in its own group instead, because the deepest group decides.
func (k Kubepods) Defaults(t *Tree) ([]policy.Group, error) {
	var groups []policy.Group
	for _, p := range k.Parents() {
		id, err := t.ID(p)
		if err != nil {
			return nil, err
		}
		g := policy.Group{Cgroup: p, ID: id, Tier: tier.Standard, EachChild: true}
		if p == k.BestEffort {
			g.Tier = tier.Background
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// PodCgroup is the cgroup of a pod.
type PodCgroup struct {
	UID  string // a static pod's is the hash of its manifest, not its mirror's UID
	Path string
	ID   uint64
	// Containers and CPUs are what ReadCpusets found.
	Containers []ContainerCgroup
	CPUs       []int // of all its containers together, ascending
}

// ContainerCgroup is the cgroup of one container of a pod.
type ContainerCgroup struct {
	Path string
	CPUs []int // what its cpuset.cpus allows of the pods' CPUs, nil if all
}

// podName is what the name of a cgroup says.
type podName struct {
	parent, path string
	uid          string // "" if it is no pod's
}

// Pods returns the cgroups of pods, in the order of k.Parents. It reads
// directories only. Pods that vanish meanwhile are left out. It is for one
// goroutine at a time, and keeps what it made of names for the next call.
func (t *Tree) Pods(k Kubepods) ([]PodCgroup, error) {
	pods := make([]PodCgroup, 0, len(t.names))
	for _, parent := range k.Parents() {
		children, err := t.list(parent)
		if err != nil {
			return nil, fmt.Errorf("list pods in cgroup %s: %w", parent, cause(err))
		}
		for _, c := range children {
			if name := t.podName(parent, c.name); name.uid != "" {
				pods = append(pods, PodCgroup{UID: name.uid, Path: name.path, ID: c.id})
			}
		}
	}
	if len(t.names) > 2*len(pods)+100 {
		t.names = nil // most of them are of pods that are gone
	}
	return pods, nil
}

func (t *Tree) podName(parent string, name []byte) podName {
	if n, ok := t.names[string(name)]; ok && n.parent == parent {
		return n
	}
	base := string(name)
	n := podName{parent: parent, path: parent + "/" + base}
	if uid, isPod := ParsePodName(base); isPod {
		n.uid = uid
	}
	if t.names == nil {
		t.names = map[string]podName{}
	}
	t.names[base] = n
	return n
}

// longestUID bounds what is taken for a pod's UID. The API server's have 36
// characters; a static pod's manifest may state another.
const longestUID = 128

// ParsePodName returns the UID of the pod whose cgroup has that name:
// "pod<uid>", or of systemd "kubepods-burstable-pod<uid>.slice" with the UID's
// dashes as underscores, because a slice's dashes are its path.
func ParsePodName(base string) (uid string, ok bool) {
	escaped, plain := strings.CutPrefix(base, "pod")
	if plain {
		return escaped, isUID(escaped)
	}
	slice, isSlice := strings.CutSuffix(base, ".slice")
	dash := strings.LastIndexByte(slice, '-')
	if !isSlice || dash < 0 {
		return "", false
	}
	parent := strings.TrimSuffix(strings.TrimSuffix(slice[:dash], "-burstable"), "-besteffort")
	escaped, isPod := strings.CutPrefix(slice[dash+1:], "pod")
	uid = strings.ReplaceAll(escaped, "_", "-")
	return uid, isPod && isKubepods(parent+".slice") && isUID(uid)
}

func isUID(text string) bool {
	return text != "" && len(text) <= longestUID && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}
