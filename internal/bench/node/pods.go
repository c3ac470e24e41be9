// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/chain"
	"github.com/temper-sched/temper/internal/tier"
)

// pod is one whose CPU time a window names.
type pod struct {
	bench.Pod
	path string
	spec bench.PodSpec // of one that the scenario lists
}

// listed returns the pods that the scenario lists besides the critical one.
func (n *node) listed() []pod {
	var out []pod
	for i, spec := range n.spec.Scenario.Primary.Pods {
		parent := kubepods
		if spec.Tier == tier.Background.String() {
			parent = bench.BestEffort
		}
		out = append(out, pod{
			Pod:  bench.Pod{Name: spec.Name, Tier: spec.Tier, Weight: spec.Weight, Threads: spec.Threads},
			path: fmt.Sprintf("%s/pod7e3c0000-0000-4000-a000-%012d", parent, i+1), spec: spec,
		})
	}
	return out
}

// hasStandard tells whether a pod of the standard tier is among them.
func (n *node) hasStandard() bool {
	return slices.ContainsFunc(n.listed(), func(p pod) bool { return p.Tier == tier.Standard.String() })
}

// tiers are the primary's and the background pods'.
func (n *node) tiers() (primary, background tier.Tier) {
	if n.spec.Scenario.Peers != nil {
		return tier.Standard, tier.Standard
	}
	return tier.Critical, tier.Background
}

// criticalPods are the names of the critical pods: the services of a chain, and
// otherwise one.
func criticalPods(p bench.Primary) []string {
	if p.Kind != chainKind {
		return []string{tier.Critical.String()}
	}
	var names []string
	for _, s := range chain.Services() {
		names = append(names, s.Name)
	}
	return names
}

// criticalPod is the cgroup of the i-th critical pod, from 0.
func criticalPod(i int) string {
	return fmt.Sprintf("%s/pod7e3c0000-0000-4000-8000-%012d", kubepods, i+1)
}

// at returns the pods that are there at a step: the critical ones first.
func (n *node) at(step bench.Step) []pod {
	var out []pod
	primary, background := n.tiers()
	for i, name := range criticalPods(n.spec.Scenario.Primary) {
		path := criticalPod(i)
		out = append(out, pod{Pod: bench.Pod{
			Name: name, Tier: primary.String(), Weight: n.tree.weights[path], Threads: n.spec.Scenario.Primary.Threads,
		}, path: path})
	}
	for _, p := range n.listed() {
		if p.spec.Point == "" || p.spec.Point == step.Point {
			out = append(out, p)
		}
	}
	for i := range step.Density {
		path := backgroundPod(i + 1)
		out = append(out, pod{Pod: bench.Pod{
			Name: n.workName(i + 1), Tier: background.String(), Weight: n.tree.weights[path], Threads: 1,
		}, path: path})
	}
	return out
}

// makePods creates the listed pods: a plan can name only what is there.
func (n *node) makePods() error {
	for _, p := range n.listed() {
		if err := n.tree.pod(p.path, p.Weight); err != nil {
			return err
		}
		if n.spec.Arm.Static && p.Tier == tier.Standard.String() {
			if err := n.tree.bind(p.path, n.tree.cpusets[bench.BestEffort]); err != nil {
				return err
			}
		}
	}
	return nil
}

// endBackground ends the work of the last background pod: all its processes, of
// which a batch has several.
func (n *node) endBackground() error {
	last := len(n.background) - 1
	err := n.tree.set(backgroundPod(last+1), "cgroup.kill", "1")
	end(n.background[last])
	n.background = n.background[:last]
	return err
}

// workName is what a record calls the n-th background pod, from 1: by its work.
func (n *node) workName(i int) string {
	name := "spinner"
	if batch := n.spec.Scenario.BatchAt(i); batch != nil {
		name = batch.Name
	}
	return fmt.Sprintf("%s-%d", name, i)
}

// setBackground brings the number of background pods that work to density, each
// with a spinner or a batch. A pod whose work was ended stays, empty. Their parent
// has the weight that kubelet gives it by their requests.
func (n *node) setBackground(ctx context.Context, density int) error {
	for len(n.background) > density {
		if err := n.endBackground(); err != nil {
			return err
		}
	}
	request := 0
	if peers := n.spec.Scenario.Peers; peers != nil {
		request = peers.RequestMilliCPU
	}
	if request > 0 && !n.spec.Arm.BackgroundIdle { // an idle group takes no weight
		if err := n.tree.weigh(bench.BestEffort, bench.KubeletWeight(density*request)); err != nil {
			return err
		}
	}
	for len(n.background) < density {
		i := len(n.background) + 1
		path := backgroundPod(i)
		if err := n.tree.pod(path, bench.KubeletWeight(request)); err != nil {
			return err
		}
		cmd, err := n.startBackground(ctx, i)
		if err != nil {
			return err
		}
		n.background = append(n.background, cmd)
	}
	return nil
}

// starves tells that the arm starves a primary that shares its CPUs so much
// that it could neither get ready beside background work nor report: that comes
// when it is ready and goes before it reports.
func (n *node) starves() bool { return n.spec.Arm.Inverted && !n.spec.Scenario.Instrument }

// settleBackground sets it and lets it spread over the CPUs.
func (n *node) settleBackground(ctx context.Context, density int) error {
	if err := n.setBackground(ctx, density); err != nil {
		return err
	}
	return sleep(ctx, stepSettle)
}

// batchPort is the first of the ports that batches may use, portsEach of them
// each.
const (
	batchPort = 6000
	portsEach = 10
)

// startBackground starts the work of the i-th background pod, from 1.
func (n *node) startBackground(ctx context.Context, i int) (*exec.Cmd, error) {
	pod, batch := backgroundPod(i), n.spec.Scenario.BatchAt(i)
	if batch == nil {
		return n.spin(ctx, pod)
	}
	// Without a seed of its own it takes the one of the last run; without
	// --oomable it guards itself against being killed, which no pod does.
	args := []string{"--quiet", "--oomable", "--no-rand-seed", "--temp-path", n.dir}
	for _, arg := range batch.Args {
		args = append(args, strings.ReplaceAll(arg, bench.PortWord, strconv.Itoa(batchPort+i*portsEach)))
	}
	cmd := exec.CommandContext(ctx, "stress-ng", args...)
	return cmd, n.tree.start(cmd, pod+ctr)
}

// spin starts a spinner in a pod.
func (n *node) spin(ctx context.Context, pod string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, n.spinner)
	return cmd, n.tree.start(cmd, pod+ctr)
}

// end kills what was started and waits until it is gone.
func end(cmd *exec.Cmd) {
	_ = cmd.Cancel()
	_ = cmd.Wait() // ended by the signal
}

// shares is what each pod used between two readings.
func shares(pods []pod, before, after []time.Duration) []bench.Pod {
	out := make([]bench.Pod, len(pods))
	for i, p := range pods {
		out[i] = p.Pod
		out[i].CPUTime = after[i] - before[i]
	}
	return out
}
