// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/topology"
)

// The cgroups of the node, laid out and weighed as kubelet does with its
// cgroupfs driver.
const (
	mount    = "/sys/fs/cgroup"
	kubepods = "/kubepods"
	critical = "/kubepods/pod7e3c0000-0000-4000-8000-000000000001" // the first critical pod
	system   = "/system.slice"
	agent    = "/system.slice/temper"
	client   = "/system.slice/client"
	driver   = "/system.slice/driver"
)

// ctr is the container's cgroup in a pod's.
const ctr = "/ctr"

// tree writes below one cgroup and remembers the weights and CPUs it set.
type tree struct {
	root    string // its directory
	weights map[string]int
	cpusets map[string]string
}

// newTree returns the tree below the cgroup root, "" for the node's own root.
// In a guest it mounts cgroup v2 if
// need be.
func newTree(root string) (*tree, error) {
	t := &tree{root: mount, weights: map[string]int{}, cpusets: map[string]string{}}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err != nil {
		if root != "" {
			return nil, fmt.Errorf("find cgroup v2 on %s: %w", mount, err)
		}
		if err := unix.Mount("cgroup2", mount, "cgroup2", 0, ""); err != nil {
			return nil, fmt.Errorf("mount cgroup2 on %s: %w", mount, err)
		}
	}
	if err := t.set("", "cgroup.subtree_control", "+cpu +cpuset"); err != nil || root == "" {
		return t, err
	}
	if err := os.MkdirAll(mount+root, 0o755); err != nil {
		return nil, fmt.Errorf("create cgroup %s: %w", root, err)
	}
	t.root = mount + root
	return t, t.set("", "cgroup.subtree_control", "+cpu +cpuset")
}

// remove takes away every cgroup that is empty below a root of our own.
func (t *tree) remove() error {
	if t.root == mount {
		return nil
	}
	var dirs []string
	err := filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, os.Remove(dir))
	}
	if err != nil {
		return fmt.Errorf("remove cgroups below %s: %w", t.root, err)
	}
	return nil
}

// neighbours are the machine's own cgroups beside a root of ours: their work
// is the system's.
func (t *tree) neighbours() ([]string, error) {
	if t.root == mount {
		return nil, nil
	}
	entries, err := os.ReadDir(mount)
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var out []string
	for _, e := range entries {
		dir := filepath.Join(mount, e.Name())
		if e.IsDir() && dir != t.root && !strings.HasPrefix(t.root, dir+"/") {
			out = append(out, dir)
		}
	}
	return out, nil
}

// layOut makes the node's cgroups, as the arm wants them.
func (t *tree) layOut(scenario bench.Scenario, arm bench.Arm, l layout) error {
	pods := topology.FormatList(l.pods)
	request := bench.KubeletWeight(scenario.Primary.RequestMilliCPU)
	ofCritical, ofBestEffort := request, bench.KubeletWeight(0)
	if arm.Inverted {
		ofCritical, ofBestEffort = ofBestEffort, ofCritical
	}
	steps := []func() error{
		// The node's own share against system.slice only completes the picture.
		func() error { return t.make(kubepods, bench.KubeletWeight(1000*len(l.pods))) },
		func() error { return t.bind(kubepods, pods) },
		func() error { return t.make(bench.BestEffort, ofBestEffort) },
		func() error { return t.criticalPods(scenario.Primary, ofCritical) },
		func() error { return t.make(system, 100) },
		func() error { return t.leaf(agent, 100) },
		// An agent's work lands where its effect does, not on the client.
		func() error { return t.bind(agent, pods) },
		func() error { return t.leaf(driver, 100) },
		func() error { return t.leaf(client, 100) },
		func() error { return t.bind(client, strconv.Itoa(l.last)) },
		func() error { return t.apply(arm, l) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) criticalPods(p bench.Primary, weight int) error {
	for i := range criticalPods(p) {
		if err := t.make(criticalPod(i), weight); err != nil {
			return err
		}
		for _, name := range containers(p) {
			if err := t.leaf(criticalPod(i)+name, weight); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply makes what distinguishes an arm by cgroup files.
func (t *tree) apply(arm bench.Arm, l layout) error {
	if arm.BackgroundIdle {
		if err := t.set(bench.BestEffort, "cpu.idle", "1"); err != nil {
			return err
		}
		t.weights[bench.BestEffort] = 0 // an idle group has no weight
	}
	if !arm.Static {
		return nil
	}
	if len(l.fence) == 0 || len(l.rest) == 0 {
		return fmt.Errorf("divide CPUs %s: %d for the critical pod and %d for all others: each needs one", topology.FormatList(l.pods), len(l.fence), len(l.rest))
	}
	if err := t.bind(critical, topology.FormatList(l.fence)); err != nil {
		return err
	}
	return t.bind(bench.BestEffort, topology.FormatList(l.rest))
}

// bind gives the cgroup these CPUs and no others.
func (t *tree) bind(path, cpus string) error {
	t.cpusets[path] = cpus
	return t.set(path, "cpuset.cpus", cpus)
}

// make creates a cgroup that will have children.
func (t *tree) make(path string, weight int) error {
	if err := t.leaf(path, weight); err != nil {
		return err
	}
	return t.set(path, "cgroup.subtree_control", "+cpu +cpuset")
}

// leaf creates a cgroup for processes.
func (t *tree) leaf(path string, weight int) error {
	if err := os.MkdirAll(t.root+path, 0o755); err != nil {
		return fmt.Errorf("create cgroup %s: %w", path, err)
	}
	return t.weigh(path, weight)
}

// weigh gives the cgroup this weight.
func (t *tree) weigh(path string, weight int) error {
	t.weights[path] = weight
	return t.set(path, "cpu.weight", strconv.Itoa(weight))
}

func (t *tree) set(path, file, value string) error {
	if err := os.WriteFile(filepath.Join(t.root+path, file), []byte(value), 0); err != nil {
		return fmt.Errorf("write %s to cgroup %s: %w", file, path, err)
	}
	return nil
}

// backgroundPod is the cgroup of the n-th background pod, from 1.
func backgroundPod(n int) string {
	return fmt.Sprintf("%s/pod7e3c0000-0000-4000-9000-%012d", bench.BestEffort, n)
}

// pod creates a pod's cgroup with its container's below.
func (t *tree) pod(path string, weight int) error {
	if err := t.make(path, weight); err != nil {
		return err
	}
	return t.leaf(path+ctr, weight)
}

// usage is the CPU time that the cgroup and all below it have used.
func (t *tree) usage(path string) (time.Duration, error) {
	return usageOf(t.root + path)
}

func usageOf(dir string) (time.Duration, error) {
	text, err := os.ReadFile(dir + "/cpu.stat")
	if err != nil {
		return 0, fmt.Errorf("read usage of cgroup: %w", err)
	}
	us, err := parseUsage(string(text))
	if err != nil {
		return 0, fmt.Errorf("read usage of cgroup %s: %w", dir, err)
	}
	return us, nil
}

// parseUsage finds usage_usec in a cpu.stat file.
func parseUsage(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		if us, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(us), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parse usage_usec: %w", err)
			}
			return time.Duration(n) * time.Microsecond, nil
		}
	}
	return 0, errors.New("no usage_usec in cpu.stat")
}
