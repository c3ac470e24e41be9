// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/kube"
)

func (p *plugin) newTop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top NODE",
		Short: "Show who runs, who waits and what is lent on a node, live",
		Long: `Show who runs, who waits and what is lent on a node, live.

It is temper top, from two answers of the node's agent. Ctrl-C ends it. Without a
terminal, or with -o json, readings follow each other; --once prints one and ends.`,
		Example:           "  kubectl temper top node-a\n  kubectl temper top node-a --once -o json | jq .lent_cpus",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeNodes,
	}
	format := outputFlag(cmd, "text", "json")
	once := cmd.Flags().Bool("once", false, "print one interval and end")
	cmd.RunE = action(func(ctx context.Context, args []string) error {
		c, err := p.open()
		if err != nil {
			return err
		}
		nodes, err := p.look(ctx, c, selection{names: args})
		if err != nil {
			return err
		}
		from := &top{cluster: c, node: nodes[0]}
		return view.Follow(ctx, from, view.ScreenOn(p.Stdout, format.value == "json", *once), p.Poll, *once)
	})
	return cmd
}

// top reads a node's counters from its agent.
type top struct {
	cluster *kube.Cluster
	node    node
	last    *agent.Report
}

// Read returns the counters that the agent read last.
func (t *top) Read(ctx context.Context) (view.Reading, error) {
	if t.node.agent == nil {
		return view.Reading{}, fmt.Errorf("read counters of node %s: %s", t.node.Name, t.node.silent)
	}
	r, err := hearOne(ctx, t.cluster, &t.node)
	if err != nil {
		return view.Reading{}, err
	}
	if r.Stats == nil {
		return view.Reading{}, &failure{
			code: exitNotAttached, err: errors.New("the agent of node " + t.node.Name + " measures nothing: " + r.Reason),
			fix: "kubectl temper status " + t.node.Name,
		}
	}
	t.last = r
	return view.Reading{Stats: *r.Stats, Limits: r.Limits, LimitsNotHeld: r.LimitsNotHeld}, nil
}

// Complete names the cgroups after their pods, and says the plan.
func (t *top) Complete(v *view.View) error {
	names := map[uint64]string{}
	for _, g := range t.last.Plan.Groups {
		names[g.ID] = g.Cgroup
	}
	for _, pod := range t.last.Pods {
		if pod.ID != 0 {
			names[pod.ID] = pod.Namespace + "/" + pod.Name
		}
	}
	v.InForce(t.last.State.Generation, t.last.Plan, func(id uint64) string { return names[id] })
	return nil
}
