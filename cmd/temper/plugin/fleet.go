// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/topology"
)

const (
	reportWithin  = 5 * time.Second // an agent answers
	reportsAtOnce = 32
)

// node is everything that is known of one.
type node struct {
	kube.NodeState
	agent  *kube.Agent   // nil if there is none
	report *agent.Report // nil if the agent did not answer
	silent string        // why it did not
}

// selection is which nodes a command is about.
type selection struct {
	names    []string
	selector string
	there    bool // of those named only the ones that are there: a node may go while it is waited for
}

// every tells that no node was named: those without Temper are left out then.
func (s selection) every() bool { return len(s.names) == 0 && s.selector == "" }

// look returns the nodes as they are now, by name.
func (p *plugin) look(ctx context.Context, c *kube.Cluster, s selection) ([]node, error) {
	states, err := c.Nodes(ctx, s.selector)
	if err != nil {
		return nil, err
	}
	for _, name := range s.names {
		if !s.there && !slices.ContainsFunc(states, func(n kube.NodeState) bool { return n.Name == name }) {
			return nil, fmt.Errorf("there is no node %s", name)
		}
	}
	agents, err := c.Agents(ctx, p.installed())
	if err != nil {
		return nil, err
	}
	var nodes []node
	for _, state := range states {
		n := node{NodeState: state, agent: agentOn(agents, state.Name)}
		if s.every() && n.agent == nil && !state.Touched() || len(s.names) > 0 && !slices.Contains(s.names, state.Name) {
			continue
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	hear(ctx, c, nodes)
	return nodes, nil
}

// agentOn is the node's agent, a Ready one before one that is about to go.
func agentOn(agents []kube.Agent, node string) *kube.Agent {
	var found *kube.Agent
	for i := range agents {
		if a := &agents[i]; a.Node == node && (found == nil || a.Ready) {
			found = a
		}
	}
	return found
}

// hear asks all agents at once for their reports.
func hear(ctx context.Context, c *kube.Cluster, nodes []node) {
	var all sync.WaitGroup
	turns := make(chan struct{}, reportsAtOnce)
	for i := range nodes {
		n := &nodes[i]
		if n.agent == nil {
			n.silent = "no agent runs on this node"
			continue
		}
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			report, err := hearOne(ctx, c, n)
			if err != nil {
				n.silent = err.Error()
				return
			}
			n.report = report
		})
	}
	all.Wait()
}

func hearOne(ctx context.Context, c *kube.Cluster, n *node) (*agent.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	text, err := c.Report(ctx, *n.agent)
	if err != nil {
		return nil, err
	}
	var r agent.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read status of agent %s: %w", n.agent.Name, err)
	}
	if r.Node != n.Name {
		return nil, fmt.Errorf("agent %s speaks for node %q", n.agent.Name, r.Node)
	}
	return &r, nil
}

// stale is why what the node's object says may no longer be so, "" if it is.
func (n node) stale(now time.Time) string {
	switch {
	case n.report != nil:
		return ""
	case n.agent == nil:
		return "no agent runs on this node"
	case !n.agent.Ready:
		return fmt.Sprintf("agent pod %s is not Ready (%s)", n.agent.Name, n.agent.Phase)
	case n.Condition == nil:
		return fmt.Sprintf("agent pod %s has not said anything yet", n.agent.Name)
	case now.Sub(n.Condition.Heartbeat) > kube.StaleAfter:
		return fmt.Sprintf("the condition's heartbeat is %s old", age(n.Condition.Heartbeat, now))
	}
	return ""
}

// away tells that nobody on the node hears what it is asked for.
func (n node) away() bool { return n.report == nil && (n.agent == nil || !n.agent.Ready) }

func (n node) engine() string {
	if n.report != nil {
		return n.report.Engine
	}
	return n.Engine
}

// reason is why the engine is not attached, or Attached; with the message, and
// since when it is so.
func (n node) reason() (reason, message string, since time.Time) {
	switch {
	case n.report != nil:
		return n.report.Reason, n.report.Message, n.report.Since
	case n.Condition != nil:
		return n.Condition.Reason, n.Condition.Message, n.Condition.Since
	case n.agent == nil && !n.Touched():
		return "NoAgent", "", time.Time{}
	}
	return "", "", time.Time{}
}

// attached tells that the engine is, as far as one can know.
func (n node) attached(now time.Time) bool {
	return n.engine() == kube.EngineAttached && n.stale(now) == ""
}

// taken tells that Temper runs the node for another process than the agent.
func (n node) taken() bool {
	return n.report != nil && n.report.State.Attached && n.report.Engine != kube.EngineAttached
}

// fenced are the node's CPUs that are in fences, and all that are online.
func fenced(r *agent.Report) (fenced, online int) {
	for _, g := range r.Plan.Groups {
		fenced += len(g.Fence)
	}
	return fenced, len(r.Topology.Online())
}

// numa are the NUMA nodes in which CPUs lie.
func numa(top topology.Topology, cpus []int) []int {
	var nodes []int
	for _, id := range cpus {
		if cpu, ok := top.Lookup(id); ok && !slices.Contains(nodes, cpu.Node) {
			nodes = append(nodes, cpu.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}
