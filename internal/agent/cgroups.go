// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/policy"
)

// cpusetsEvery is how often it is read which CPUs kubelet gave to pods alone, a
// file for each container: as often as kubelet takes them from the others.
const cpusetsEvery = 10 * time.Second

// LiveCgroups is the cgroup hierarchy mounted at Root. The zero value of the
// rest will do.
type LiveCgroups struct {
	Root string

	tree      *cgroup.Tree
	kube      cgroup.Kubepods
	found     bool
	exclusive map[string][]int
	readAt    time.Time
}

// open finds the hierarchy, which a node may get, or not, while the agent runs.
func (c *LiveCgroups) open() (*cgroup.Tree, error) {
	return cgroup.Open(c.Root)
}

// Look is for one goroutine at a time.
func (c *LiveCgroups) Look() ([]policy.Group, map[string]Place, error) {
	if c.tree == nil {
		tree, err := c.open()
		if err != nil {
			return nil, nil, err
		}
		c.tree = tree
	}
	defaults, pods, err := c.look()
	if err != nil && c.found { // kubelet has another driver now, or is gone
		c.found = false
		defaults, pods, err = c.look()
	}
	return defaults, pods, err
}

func (c *LiveCgroups) look() ([]policy.Group, map[string]Place, error) {
	// Again while a QoS cgroup is missing: kubelet makes them one by one.
	if !c.found || c.kube.Burstable == "" || c.kube.BestEffort == "" {
		k, err := c.tree.Kubepods()
		if err != nil {
			return nil, nil, err
		}
		c.kube, c.found = k, true
	}
	defaults, err := c.kube.Defaults(c.tree)
	if err != nil {
		return nil, nil, err
	}
	pods, err := c.tree.Pods(c.kube)
	if err != nil {
		return nil, nil, err
	}
	if time.Since(c.readAt) >= cpusetsEvery {
		if err := c.tree.ReadCpusets(c.kube, pods); err != nil {
			return nil, nil, err
		}
		c.exclusive, c.readAt = cgroup.ExclusiveCPUs(pods), time.Now()
	}
	places := make(map[string]Place, len(pods))
	for _, p := range pods {
		places[p.UID] = Place{Cgroup: p.Path, ID: p.ID, Exclusive: c.exclusive[p.UID]}
	}
	return defaults, places, nil
}

// Limits may be called from any goroutine, as may Paths, Usage and Watch.
func (c *LiveCgroups) Limits() ([]policy.Limit, error) {
	tree, err := c.open()
	if err != nil {
		return nil, err
	}
	return tree.Limits()
}

// Paths returns the path of every cgroup by its id.
func (c *LiveCgroups) Paths() (map[uint64]string, error) {
	tree, err := c.open()
	if err != nil {
		return nil, err
	}
	return tree.Paths()
}

// Usage returns what the kernel counted for each cgroup.
func (c *LiveCgroups) Usage(paths []string) (map[string]time.Duration, error) {
	tree, err := c.open()
	if err != nil {
		return nil, err
	}
	usage := make(map[string]time.Duration, len(paths))
	var errs []error
	for _, p := range paths {
		used, err := tree.Usage(p)
		switch {
		case err == nil:
			usage[p] = used
		case !cgroup.IsGone(err):
			errs = append(errs, err)
		}
	}
	return usage, errors.Join(errs...)
}

// Watch returns when a parent of pods goes.
func (c *LiveCgroups) Watch(ctx context.Context, changed func()) error {
	tree, err := c.open()
	if err != nil {
		return err
	}
	kube, err := tree.Kubepods()
	if err != nil {
		return err
	}
	changes, err := tree.Watch(ctx, kube)
	if err != nil {
		return err
	}
	changed() // what came before the watch
	for range changes {
		changed()
	}
	return errors.New("the parents of pods changed")
}
