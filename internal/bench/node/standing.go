// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/topology"
)

// Standing is one step on a node whose pods and scheduler are there already:
// a cluster's. Its kubelet uses the cgroupfs driver.
type Standing struct {
	Scenario bench.Scenario `json:"scenario"`
	Seed     uint64         `json:"seed"`
	Step     int            `json:"step"`     // its index in the scenario
	Critical string         `json:"critical"` // the critical pod's cgroup
	Addr     string         `json:"addr"`     // where its server listens
	// IdleBefore is what an earlier step on this node said; 0 to find out.
	IdleBefore float64 `json:"idle_before,omitempty"`
}

// standingQuiet is how long a cluster's node is looked at before its first step:
// kubelet and agent never leave it quiet, and nothing is waited for.
const standingQuiet = 4 * quietSpan

// Measure measures the step and writes events to out. The instrument's CPU is
// taken from pods and from what else lives in system.slice.
func (s Standing) Measure(ctx context.Context, out io.Writer) error {
	if err := s.Scenario.Validate(); err != nil {
		return err
	}
	steps := s.Scenario.Steps()
	if s.Step < 0 || s.Step >= len(steps) || !s.Scenario.Instrument {
		return fmt.Errorf("measure step %d of %s: a server's scenario with that step is needed", s.Step, s.Scenario.Name)
	}
	debug.SetGCPercent(-1)
	n := &node{spec: Spec{Scenario: s.Scenario, Seed: s.Seed}, events: json.NewEncoder(out), idle: s.IdleBefore}
	if err := n.stand(s.Critical); err != nil {
		return err
	}
	hello, err := hello()
	if err != nil {
		return err
	}
	if err := n.tell(Event{Hello: &hello}); err != nil {
		return err
	}
	if n.idle == 0 {
		l, err := n.measure(ctx, standingQuiet)
		if err != nil {
			return err
		}
		n.idle = float64(l.Idle) / (float64(l.Length) * float64(l.CPUs))
	}
	w, err := n.standing(ctx, &server{node: n, addr: s.Addr}, steps[s.Step])
	if err != nil {
		return fmt.Errorf("measure step %d: %w", s.Step, err)
	}
	return n.tell(Event{Window: w})
}

// stand finds its way about the node, and makes room for itself.
func (n *node) stand(pod string) error {
	var err error
	if n.topology, err = topology.Read(os.DirFS(topology.Root)); err != nil {
		return err
	}
	if n.layout, err = layOut(n.spec.Scenario, n.topology); err != nil {
		return err
	}
	if n.tree, err = newTree(""); err != nil {
		return err
	}
	if err := n.tree.makeRoom(n.layout); err != nil {
		return err
	}
	if err := n.tree.set(driver, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	if err := pinProcess(n.layout.last); err != nil {
		return err
	}
	if err := n.tree.readWeights(kubepods, bench.BestEffort, pod, system); err != nil {
		return err
	}
	n.counters = &counters{tree: n.tree, layout: n.layout, others: true, critical: []string{pod}}
	return n.counters.findKernelThreads()
}

// makeRoom gives the client its CPU, and all others of the node's the rest.
func (t *tree) makeRoom(l layout) error {
	if err := t.make(system, 100); err != nil {
		return err
	}
	daemons, err := filepath.Glob(t.root + system + "/*/cgroup.procs")
	if err != nil {
		return fmt.Errorf("list cgroups of %s: %w", system, err)
	}
	for _, path := range []string{driver, client} {
		if err := t.leaf(path, 100); err != nil {
			return err
		}
	}
	pods := topology.FormatList(l.pods)
	for _, file := range append(daemons, t.root+kubepods+"/cgroup.procs") {
		if path := strings.TrimPrefix(filepath.Dir(file), t.root); path != driver && path != client {
			if err := t.bind(path, pods); err != nil {
				return err
			}
		}
	}
	return t.bind(client, strconv.Itoa(l.last))
}

// readWeights notes the weights that somebody else has set.
func (t *tree) readWeights(paths ...string) error {
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(t.root+path, "cpu.weight"))
		if err != nil {
			return fmt.Errorf("read weight of cgroup: %w", err)
		}
		if t.weights[path], err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return fmt.Errorf("read weight of cgroup %s: %w", path, err)
		}
	}
	return nil
}

// standing measures a window of what runs.
func (n *node) standing(ctx context.Context, p primary, step bench.Step) (*bench.Window, error) {
	running, err := p.begin(ctx, step)
	if err != nil {
		return nil, err
	}
	w := &bench.Window{Step: step, IdleBefore: n.idle, Weights: n.tree.weights, Cpusets: n.tree.cpusets}
	if err := inRealTime(func() error { return n.watch(ctx, running, w) }); err != nil {
		return nil, err
	}
	result, within, err := running.end()
	if err != nil {
		return nil, err
	}
	w.Primary = result
	w.Sched = slices.Insert(w.Sched, 1, within...)
	if len(w.Sched) < 3 {
		return nil, errors.New("the client did not look at the scheduler")
	}
	return w, nil
}
