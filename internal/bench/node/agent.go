// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/agent/agenttest"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/sched"
)

// agentNode is the node agent as a primary: this program is its API server and
// its kubelet, on the instrument's CPU, and looks into the kernel to see what
// comes of it.
type agentNode struct {
	node  *node
	api   *kubetest.Server
	dir   string // of its files
	args  []string
	other string // the program with another BPF object in it
	agent *agentProcess
	made  int // pods so far
}

// Where the agent serves.
const agentPort = "127.0.0.1:9464"

// collectAt is how much memory this process has before it collects garbage
// outside the pauses between windows.
const collectAt = 320 << 20

// settleWithin bounds the wait for a state that the node is on the way to.
const settleWithin = 30 * time.Second

const burstable = kubepods + "/burstable"

// start brings up API server, pods and agent, and waits until all is in force.
func (a *agentNode) start(ctx context.Context) (err error) {
	n := a.node
	if n.spec.Arm.Ops != sched.Name || !n.spec.Arm.NoProbe {
		return fmt.Errorf("start agent: arm %s: the agent attaches and measures by itself, which is temper:no-probe", n.spec.Arm.Name)
	}
	// An API server allocates; what it leaves is collected between windows. A
	// collection within one may have the real-time thread that watches it spin for
	// a thread that it keeps from running, until the kernel stops it after 0.95 s.
	debug.SetMemoryLimit(collectAt)
	if a.dir, err = os.MkdirTemp("", "agent"); err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	if err := n.tree.make(burstable, bench.KubeletWeight(n.spec.Scenario.Primary.RequestMilliCPU)); err != nil {
		return err
	}
	if err := a.serve(); err != nil {
		return err
	}
	for range int(n.spec.Scenario.Primary.Params["pods"]) {
		// A third of them critical, as their priority says.
		p := kubetest.Pod{MilliCPU: 10, Priority: a.made % 3 * 500_000}
		dir, err := a.makePod(&p)
		if err != nil {
			return err
		}
		if err := a.sleeper(ctx, dir); err != nil {
			return err
		}
	}
	if err := a.makeOther(); err != nil {
		return err
	}
	if err := a.startAgent(ctx, n.spec.Agent); err != nil {
		return err
	}
	return a.await(ctx, "every pod is in the plan", func() bool { return len(a.inForce()) >= a.made })
}

// serve starts the API server and writes the agent's files.
func (a *agentNode) serve() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read boot id: %w", err)
	}
	a.api = kubetest.New()
	a.api.Put(kubetest.NodePath, kubetest.Node(strings.TrimSpace(string(boot))))
	if err := a.api.Start(); err != nil {
		return err
	}
	a.node.atEnd = append(a.node.atEnd, a.api.Stop)
	kubeconfig, err := a.api.Kubeconfig(a.dir)
	if err != nil {
		return err
	}
	config := filepath.Join(a.dir, "agent.yaml")
	if err := os.WriteFile(config, []byte("mode: enforce\nsettle: 0s\n"), 0o644); err != nil {
		return fmt.Errorf("configure agent: %w", err)
	}
	a.args = []string{
		"--config", config, "--node-name", kubetest.NodeName, "--kubeconfig", kubeconfig, "--listen", agentPort,
		"--run-dir", filepath.Join(a.dir, "run"),
	}
	return nil
}

// makePod lets a pod come: the API server tells of it and its cgroups are made.
func (a *agentNode) makePod(p *kubetest.Pod) (dir string, err error) {
	a.made++
	p.Name, p.UID = fmt.Sprintf("pod-%d", a.made), kubetest.UID(a.made)
	a.api.Put(p.Path(), p.Object())
	parent := burstable
	if p.Quality() == "BestEffort" {
		parent = bench.BestEffort
	}
	dir = a.node.tree.root + parent + "/pod" + p.UID
	for _, path := range []string{dir, dir + ctr} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return "", fmt.Errorf("make pod: %w", err)
		}
	}
	return dir, nil
}

// removePod lets it go, with what is empty in it.
func (a *agentNode) removePod(p kubetest.Pod, dir string) error {
	a.api.Drop(p.Path())
	if err := errors.Join(os.Remove(dir+ctr), os.Remove(dir)); err != nil {
		return fmt.Errorf("remove pod: %w", err)
	}
	return nil
}

// sleeper is a pod's process, which does nothing.
func (a *agentNode) sleeper(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "sleep", "3600")
	if err := a.node.tree.start(cmd, strings.TrimPrefix(dir, a.node.tree.root)+ctr); err != nil {
		return err
	}
	a.node.started = append(a.node.started, cmd)
	return nil
}

// makeOther copies the agent with another BPF object in it.
func (a *agentNode) makeOther() error {
	program, err := os.ReadFile(a.node.spec.Agent)
	if err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	other, err := agenttest.OtherBuild(program)
	if err != nil {
		return err
	}
	a.other = filepath.Join(a.dir, "temper-agent")
	if err := os.WriteFile(a.other, other, 0o755); err != nil {
		return fmt.Errorf("copy agent: %w", err)
	}
	return nil
}

// agentProcess is an agent that runs.
type agentProcess struct {
	*exec.Cmd
	log   agenttest.Transcript
	ended chan struct{}
}

// startAgent starts program as the agent where a node's agents live, and waits
// until it holds the scheduler.
func (a *agentNode) startAgent(ctx context.Context, program string) error {
	p := &agentProcess{Cmd: exec.CommandContext(ctx, program, a.args...), ended: make(chan struct{})}
	p.Stdout, p.Stderr = &p.log, &p.log
	if err := a.node.tree.start(p.Cmd, agent); err != nil {
		return err
	}
	go func() {
		_ = p.Wait() // how it ended is seen by what it said
		close(p.ended)
	}()
	a.agent = p
	a.node.atEnd = append(a.node.atEnd, func() { _ = p.Process.Kill(); <-p.ended })
	return a.await(ctx, "the agent holds the scheduler", func() bool { return strings.Contains(p.log.String(), `"scheduler attached"`) })
}

// endAgent lets it go by a signal.
func (a *agentNode) endAgent(ctx context.Context, by syscall.Signal) error {
	if err := a.agent.Process.Signal(by); err != nil {
		return fmt.Errorf("end agent: %w", err)
	}
	select {
	case <-a.agent.ended:
		return nil
	case <-time.After(settleWithin):
		return fmt.Errorf("end agent: it still runs %v after %v", settleWithin, by)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// await waits for a state.
func (a *agentNode) await(ctx context.Context, what string, holds func() bool) error {
	for began := monotonic(); !holds(); {
		if monotonic()-began > settleWithin {
			return fmt.Errorf("wait until %s: not within %v; the agent said: %s", what, settleWithin, a.agent.log.String())
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// inForce are the cgroups that the plan in force names, by id; none while it is
// being replaced.
func (a *agentNode) inForce() map[uint64]bool {
	s, err := sched.Open(sched.DefaultPinDir)
	if err != nil {
		return nil
	}
	defer s.Close()
	return planned(s)
}

func planned(s *sched.Scheduler) map[uint64]bool {
	plan, err := s.Plan()
	if err != nil {
		return nil
	}
	ids := map[uint64]bool{}
	for _, g := range plan.Groups {
		ids[g.ID] = true
	}
	return ids
}

// cgroupID is its id as the kernel side knows it.
func cgroupID(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("read id of cgroup: %w", err)
	}
	return st.Ino, nil
}
