// SPDX-License-Identifier: Apache-2.0

// Package node runs a scenario's ladder on the node it is started on, usually
// inside a guest: it lays out the pods' cgroups, starts server, spinners and
// client, and reads the node's counters around every window. It decides
// nothing: what it measured goes out as events, and the laboratory judges.
//
// Where a client measures, the node's last CPU is the instrument's: the client
// and this program live there, and pods may use all others, as with kubelet's
// reserved CPUs. So the fight is over the others alone, and the client cannot be
// part of it. Where the primary measures itself, pods may use all CPUs, and this
// program sleeps through the window but for a few looks at the scheduler's name.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/spin"
	"github.com/temper-sched/temper/internal/topology"
)

// Spec is one run: a scenario under an arm.
type Spec struct {
	Scenario bench.Scenario `json:"scenario"`
	Arm      bench.Arm      `json:"arm"`
	Seed     uint64         `json:"seed"`
	// Temper is where the command line lies on the node, Exec and ExecConfig
	// the program and the configuration of an exec arm, Agent the node agent.
	Temper     string `json:"temper,omitempty"`
	Agent      string `json:"agent,omitempty"`
	Exec       string `json:"exec,omitempty"`
	ExecConfig string `json:"exec_config,omitempty"`
	// ExecLoader comes before the program's path, where it needs libraries.
	ExecLoader []string `json:"exec_loader,omitempty"`
	// Root is the cgroup below which all of it happens; empty for the node's
	// root. A machine with other work of its own has one.
	Root string `json:"root,omitempty"`
	// CPUs is the number of the node's CPUs.
	CPUs int `json:"cpus"`
}

// seedAt is what the random numbers of a step begin with. Every arm has the same
// in the same step. So have all densities of an operating point on the way up,
// and others on the way down: what sets two densities apart is not the luck of
// their arrivals.
func (s Spec) seedAt(step bench.Step) uint64 {
	points := map[string]bool{}
	for _, before := range s.Scenario.Steps()[:step.Index] {
		points[before.Point] = true
	}
	delete(points, step.Point)
	return s.Seed<<16 + uint64(len(points))<<8 + uint64(s.Scenario.Visit(step))
}

// Event is one line of what the node tells the laboratory. One field is set.
type Event struct {
	Hello    *Hello        `json:"hello,omitempty"`
	Progress string        `json:"progress,omitempty"`
	Window   *bench.Window `json:"window,omitempty"`
}

// Hello says which kernel runs, as it says itself.
type Hello struct {
	Kernel  string `json:"kernel"`
	Cmdline string `json:"cmdline"`
}

// Settling: the node must have been quiet for one quietSpan, within settleBound.
const (
	quietSpan   = 500 * time.Millisecond
	quietShare  = 0.99
	settleBound = 60 * time.Second
	// stepSettle lets new background work spread over the CPUs before the client's
	// own warm-up begins.
	stepSettle = 100 * time.Millisecond
)

// node is a run in progress.
type node struct {
	spec     Spec
	events   *json.Encoder
	topology topology.Topology
	layout   layout
	tree     *tree
	counters *counters
	prober   *prober // nil: the arm has no probe
	glance   *glance // nil: the primary's instrument looks itself
	dir      string  // of this run's files, and gone with it
	spinner  string
	started  []*exec.Cmd
	// background is the work of each background pod, by pod: a spinner or a batch.
	background []*exec.Cmd
	atEnd      []func()
	atExit     func() error // when all that was started is gone
	idle       float64      // share of idle CPU time before the first client
}

// Run carries out spec and writes events to out until the ladder is done.
func Run(ctx context.Context, spec Spec, out io.Writer) (err error) {
	if err := spec.Scenario.Validate(); err != nil {
		return err
	}
	// A collection would take the client's CPU for milliseconds. A run
	// allocates little, and the guest ends with it.
	debug.SetGCPercent(-1)
	n := &node{spec: spec, events: json.NewEncoder(out)}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := n.prepare(); err != nil {
		return err
	}
	if err := n.startScheduler(ctx); err != nil {
		return err
	}
	if err := n.startProbe(); err != nil {
		return err
	}
	if !spec.Scenario.Instrument || spec.Scenario.KindOf().Tool {
		n.glance = newGlance()
	}
	p := n.newPrimary()
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := n.settle(ctx); err != nil {
		return err
	}
	for _, step := range spec.Scenario.Steps() {
		w, err := n.step(ctx, p, step)
		if err != nil {
			return fmt.Errorf("measure step %d beside %d background pods: %w", step.Index, step.Density, err)
		}
		if err := n.tell(Event{Window: w}); err != nil {
			return err
		}
	}
	return nil
}

// prepare lays out cgroups and files and moves this process to its CPU.
func (n *node) prepare() error {
	var err error
	if n.topology, err = topology.Read(os.DirFS(topology.Root)); err != nil {
		return err
	}
	if online := len(n.topology.Online()); online != n.spec.CPUs {
		return fmt.Errorf("prepare node: %d CPUs online, the run expects %d", online, n.spec.CPUs)
	}
	if n.layout, err = layOut(n.spec.Scenario, n.topology); err != nil {
		return err
	}
	if n.tree, err = newTree(n.spec.Root); err != nil {
		return err
	}
	if err := n.tree.layOut(n.spec.Scenario, n.spec.Arm, n.layout); err != nil {
		return err
	}
	if err := n.makePods(); err != nil {
		return err
	}
	if err := n.enter(); err != nil {
		return err
	}
	if err := pinProcess(n.layout.last); err != nil {
		return err
	}
	n.counters = &counters{tree: n.tree, layout: n.layout, others: n.hasStandard(), limited: n.limited()}
	for i := range criticalPods(n.spec.Scenario.Primary) {
		n.counters.critical = append(n.counters.critical, criticalPod(i))
	}
	if n.counters.neighbours, err = n.tree.neighbours(); err != nil {
		return err
	}
	if err := n.counters.findKernelThreads(); err != nil {
		return err
	}
	if err := n.makeDir(); err != nil {
		return err
	}
	hello, err := hello()
	if err != nil {
		return err
	}
	return n.tell(Event{Hello: &hello})
}

// makeDir creates the directory of the run's files and installs the spinner in it.
// A machine's own /tmp is others' too: no name there may be known beforehand.
func (n *node) makeDir() (err error) {
	if n.dir, err = os.MkdirTemp("", "temper-lab-"); err != nil {
		return fmt.Errorf("create directory of the run: %w", err)
	}
	n.spinner = filepath.Join(n.dir, "spin")
	return spin.Install(n.spinner)
}

// enter moves this process to its place in the tree, and at the end back to
// where it was, so that the tree can be removed.
func (n *node) enter() error {
	was, err := ownCgroup()
	if err != nil {
		return err
	}
	if err := n.tree.set(driver, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	n.atExit = func() error {
		if n.spec.Root == "" {
			return nil // a guest's end is the end of everything
		}
		back := &tree{root: mount + was}
		return errors.Join(back.set("", "cgroup.procs", strconv.Itoa(os.Getpid())), n.tree.remove())
	}
	return nil
}

// ownCgroup is the path of this process's cgroup.
func ownCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("read own cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("read own cgroup: no line for cgroup v2")
}

func hello() (Hello, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Hello{}, fmt.Errorf("read kernel release: %w", err)
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return Hello{}, fmt.Errorf("read kernel command line: %w", err)
	}
	return Hello{Kernel: unix.ByteSliceToString(name.Release[:]), Cmdline: strings.TrimSpace(string(cmdline))}, nil
}

func (n *node) tell(e Event) error {
	if err := n.events.Encode(e); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// settle waits until boot work has ended. A node that stays busy is measured
// all the same; its windows will be void.
func (n *node) settle(ctx context.Context) error {
	begin := monotonic()
	for {
		l, err := n.measure(ctx, quietSpan)
		if err != nil {
			return err
		}
		n.idle = float64(l.Idle) / (float64(l.Length) * float64(l.CPUs))
		if took := monotonic() - begin; n.idle >= quietShare || took > settleBound {
			return n.tell(Event{Progress: fmt.Sprintf("settled: %.1f %% idle after %v", 100*n.idle, took.Round(time.Millisecond))})
		}
	}
}

// measure returns the ledger of the next span.
func (n *node) measure(ctx context.Context, span time.Duration) (l bench.Ledger, err error) {
	err = inRealTime(func() error {
		before, err := n.counters.read()
		if err != nil {
			return err
		}
		if err := sleepUntil(ctx, before.at+span); err != nil {
			return err
		}
		after, err := n.counters.read()
		l = n.counters.ledger(before, after)
		return err
	})
	return l, err
}
