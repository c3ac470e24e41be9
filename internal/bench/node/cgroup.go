// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// The cgroups of the node, laid out and weighed as kubelet does with its
// cgroupfs driver.
const (
	mount    = "/sys/fs/cgroup"
	kubepods = "/kubepods"
	critical = "/kubepods/pod7e3c0000-0000-4000-8000-000000000001"
	system   = "/system.slice"
	agent    = "/system.slice/temper"
	client   = "/system.slice/client"
	driver   = "/system.slice/driver"
)

// tree writes below a cgroup mount and remembers the weights it set.
type tree struct {
	root    string
	weights map[string]int
}

// newTree mounts cgroup v2 if need be and lays out the node: the client on the
// last CPU, pods on all others.
func newTree(scenario bench.Scenario, cpus int) (*tree, error) {
	last := cpus - 1
	podCPUs, clientCPU := fmt.Sprintf("0-%d", last-1), strconv.Itoa(last)
	t := &tree{root: mount, weights: map[string]int{}}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err != nil {
		if err := unix.Mount("cgroup2", mount, "cgroup2", 0, ""); err != nil {
			return nil, fmt.Errorf("mount cgroup2 on %s: %w", mount, err)
		}
	}
	// The node's own share against system.slice: its CPUs are not contended
	// by pods, so this only completes the picture.
	node := bench.KubeletWeight(1000 * last)
	steps := []func() error{
		func() error { return t.make(kubepods, node) },
		func() error { return t.set(kubepods, "cpuset.cpus", podCPUs) },
		func() error { return t.make(bench.BestEffort, bench.KubeletWeight(0)) },
		func() error { return t.make(critical, bench.KubeletWeight(scenario.Primary.RequestMilliCPU)) },
		func() error { return t.leaf(critical+"/ctr", bench.KubeletWeight(scenario.Primary.RequestMilliCPU)) },
		func() error { return t.make(system, 100) },
		func() error { return t.leaf(agent, 100) },
		// An agent's work lands where its effect does, not on the client.
		func() error { return t.set(agent, "cpuset.cpus", podCPUs) },
		func() error { return t.leaf(driver, 100) },
		func() error { return t.leaf(client, 100) },
		func() error { return t.set(client, "cpuset.cpus", clientCPU) },
	}
	if err := t.set("", "cgroup.subtree_control", "+cpu +cpuset"); err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return t, nil
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
	t.weights[path] = weight
	return t.set(path, "cpu.weight", strconv.Itoa(weight))
}

func (t *tree) set(path, file, value string) error {
	if err := os.WriteFile(filepath.Join(t.root+path, file), []byte(value), 0); err != nil {
		return fmt.Errorf("write %s to cgroup %s: %w", file, path, err)
	}
	return nil
}

// backgroundPod creates the cgroup of the n-th background pod, from 1, and
// returns its container's.
func (t *tree) backgroundPod(n int) (string, error) {
	pod := fmt.Sprintf("%s/pod7e3c0000-0000-4000-9000-%012d", bench.BestEffort, n)
	if err := t.make(pod, bench.KubeletWeight(0)); err != nil {
		return "", err
	}
	ctr := pod + "/ctr"
	return ctr, t.leaf(ctr, bench.KubeletWeight(0))
}

// usage is the CPU time that the cgroup and all below it have used.
func (t *tree) usage(path string) (time.Duration, error) {
	text, err := os.ReadFile(t.root + path + "/cpu.stat")
	if err != nil {
		return 0, fmt.Errorf("read usage of cgroup %s: %w", path, err)
	}
	us, err := parseUsage(string(text))
	if err != nil {
		return 0, fmt.Errorf("read usage of cgroup %s: %w", path, err)
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
