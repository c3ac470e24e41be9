// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/tier"
)

// safeModeForgotten is how long safe mode is meant to last at most.
const safeModeForgotten = 24 * time.Hour

// The outcomes of a check.
const (
	passed  = "ok"
	failed  = "FAIL"
	skipped = "skip" // could not be looked at
)

// check is one fact of the cluster or a node.
type check struct {
	Subject string `json:"subject"` // "cluster" or a node
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail"`
	Fix     string `json:"fix,omitempty"` // the way out, of one that failed
}

func (p *plugin) newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Check the install and every node, and say what to do about what fails",
		Long: `Check the install and every node, and say what to do about what fails: whether the
agents are rolled out, of one version and allowed what they need; which PriorityClasses
make pods critical; and of each node what attaching depends on, as its agent sees it.

Nothing is changed. The exit code is 6 if something fails.`,
		Example:           "  kubectl temper doctor\n  kubectl temper doctor node-a -o json | jq '.[] | select(.outcome == \"FAIL\")'",
		ValidArgsFunction: p.completeNodes,
	}
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = action(func(ctx context.Context, args []string) error {
		c, err := p.open()
		if err != nil {
			return err
		}
		nodes, err := p.look(ctx, c, selection{names: args})
		if err != nil {
			return err
		}
		checks := []check{
			p.rolledOut(ctx, c), p.sameVersion(nodes), p.criticalClasses(ctx, c), p.agentMay(ctx, c),
		}
		for _, n := range nodes {
			checks = append(checks, nodeChecks(n, time.Now())...)
		}
		isData, err := p.data(format, checks)
		if err == nil && !isData {
			err = p.checks(checks)
		}
		if err == nil && slices.ContainsFunc(checks, func(c check) bool { return c.Outcome == failed }) {
			err = &failure{code: exitUnfit} // the output has said it
		}
		return err
	})
	return cmd
}

func (p *plugin) checks(checks []check) error {
	failures := 0
	for _, c := range checks {
		if c.Outcome == failed {
			failures++
		}
		if _, err := fmt.Fprintf(p.text, "%-4s  %s\n", c.Outcome, line(c.Subject+": "+c.Name+": "+c.Detail)); err != nil {
			return err
		}
		if c.Fix != "" {
			fmt.Fprintf(p.text, "      try: %s\n", line(c.Fix))
		}
	}
	verdict := "nothing failed"
	if failures > 0 {
		verdict = fmt.Sprintf("%s of %d failed", view.Count(failures, "check"), len(checks))
	}
	_, err := fmt.Fprintln(p.text, verdict)
	return err
}

// unknown is a check that could not be made.
func unknown(c check, err error) check {
	c.Outcome, c.Detail = skipped, err.Error()
	return c
}

func (p *plugin) rolledOut(ctx context.Context, c *kube.Cluster) check {
	out := check{Subject: "cluster", Name: "agents rolled out", Outcome: failed}
	sets, err := c.DaemonSets(ctx, p.installed())
	if err != nil {
		return unknown(out, err)
	}
	if len(sets) == 0 {
		out.Detail = "no DaemonSet of agents in namespace " + p.installed()
		out.Fix = "install Temper, or name its namespace with -n"
		return out
	}
	var details []string
	desired := 0
	out.Outcome = passed
	for _, s := range sets {
		desired += s.Desired
		details = append(details, fmt.Sprintf("%s: %d of %d Ready, %d of the newest", s.Name, s.Ready, s.Desired, s.Updated))
		if !s.Observed || s.Ready < s.Desired || s.Updated < s.Desired {
			out.Outcome = failed
			out.Fix = fmt.Sprintf("kubectl -n %s rollout status daemonset/%s", p.installed(), s.Name)
		}
	}
	out.Detail = strings.Join(details, "; ")
	if desired == 0 {
		out.Outcome = failed
		out.Detail += "; no node is for them"
		out.Fix = fmt.Sprintf("kubectl -n %s describe daemonset: its nodeSelector and affinity fit no node", p.installed())
	}
	return out
}

func (p *plugin) sameVersion(nodes []node) check {
	out := check{Subject: "cluster", Name: "one version", Outcome: passed}
	on := map[string]int{}
	for _, n := range nodes {
		if n.report != nil {
			on[n.report.Version]++
		}
	}
	var versions []string
	for version, count := range on {
		versions = append(versions, fmt.Sprintf("%s on %s", version, view.Count(count, "node")))
	}
	slices.Sort(versions)
	out.Detail = strings.Join(versions, ", ") + "; this program is " + p.Version
	switch {
	case len(on) == 0:
		out.Outcome, out.Detail = skipped, "no agent answered"
	case len(on) > 1:
		out.Outcome = failed
		out.Fix = "wait for the rollout, or end the canary; nodes of either version go on meanwhile"
	}
	return out
}

// agentConfig is the agents' configuration, the default one if it cannot be read.
func (p *plugin) agentConfig(ctx context.Context, c *kube.Cluster) (_ config.Agent, read bool) {
	data, err := c.ConfigMap(ctx, p.installed(), kube.AgentName)
	if err == nil {
		if a, err := config.ParseAgent("agent.yaml", []byte(data["agent.yaml"])); err == nil {
			return a, true
		}
	}
	return config.DefaultAgent(), false
}

func (p *plugin) thresholds(ctx context.Context, c *kube.Cluster) tier.Thresholds {
	a, _ := p.agentConfig(ctx, c)
	return a.Tiers
}

func (p *plugin) criticalClasses(ctx context.Context, c *kube.Cluster) check {
	out := check{Subject: "cluster", Name: "PriorityClasses that make pods critical", Outcome: passed}
	classes, err := c.PriorityClasses(ctx)
	if err != nil {
		return unknown(out, err)
	}
	th := p.thresholds(ctx, c)
	var names []string
	for _, class := range classes {
		if rank, _ := tier.Of(tier.Pod{Priority: class.Value, Class: class.Name}, th); rank != tier.Critical {
			continue
		}
		names = append(names, fmt.Sprintf("%s (%d)", class.Name, class.Value))
		if class.GlobalDefault {
			out.Outcome = failed
			out.Fix = "set globalDefault of PriorityClass " + class.Name + " to false: every pod without a class is critical by it"
		}
	}
	slices.Sort(names)
	out.Detail = strings.Join(names, ", ")
	if len(names) == 0 {
		out.Outcome, out.Detail = failed, fmt.Sprintf("none of value %d or more: no pod can have a fence", th.Critical)
		out.Fix = fmt.Sprintf("kubectl create priorityclass temper-critical --value=%d", th.Critical)
	}
	return out
}

func (p *plugin) agentMay(ctx context.Context, c *kube.Cluster) check {
	out := check{Subject: "cluster", Name: "what the agent is allowed", Outcome: passed, Detail: "all that it needs"}
	denied, err := c.AgentMayNot(ctx, p.installed())
	if err != nil {
		return unknown(out, err)
	}
	if len(denied) > 0 {
		out.Outcome, out.Detail = failed, "it may not "+strings.Join(denied, ", ")
		out.Fix = "install again: the ClusterRole and its binding are missing or were changed"
	}
	return out
}

func nodeChecks(n node, now time.Time) []check {
	out := []check{agentCheck(n, now), safeModeCheck(n, now)}
	if n.report == nil {
		return out
	}
	out = append(out, engineCheck(n))
	for _, c := range n.report.Checks {
		if c.OK {
			out = append(out, check{n.Name, c.Name, passed, c.Detail, ""})
		} else {
			out = append(out, check{n.Name, c.Name, failed, string(c.Reason) + ": " + c.Detail, c.Fix})
		}
	}
	return out
}

func agentCheck(n node, now time.Time) check {
	out := check{Subject: n.Name, Name: "agent", Outcome: failed}
	stale := n.stale(now)
	switch {
	case n.report != nil && n.report.Connected:
		out.Outcome, out.Detail = passed, n.agent.Name+" "+n.report.Version
	case n.report != nil:
		out.Detail = "the watches of " + n.agent.Name + " are broken: it goes by what it knew"
		out.Fix = fmt.Sprintf("kubectl -n %s logs %s", n.agent.Namespace, n.agent.Name)
	case n.agent == nil:
		out.Detail = stale
		out.Fix = "if the node should have one: the DaemonSet's nodeSelector and tolerations; if not: kubectl temper uninstall removes its traces"
	case stale != "":
		out.Detail = stale
		out.Fix = fmt.Sprintf("kubectl -n %s describe pod %s", n.agent.Namespace, n.agent.Name)
	default:
		out.Outcome, out.Detail = skipped, n.silent
	}
	return out
}

func safeModeCheck(n node, now time.Time) check {
	out := check{Subject: n.Name, Name: "safe mode", Outcome: passed, Detail: "off"}
	reason, message, since := n.reason()
	on := n.engine() == kube.EngineSafe && reason != agent.ReasonEjectLatched
	switch {
	case !n.SafeMode && !on:
		return out
	case !on && n.away():
		out.Outcome, out.Detail = skipped, "asked for by the annotation: an agent that comes heeds it"
		return out
	case !on:
		out.Outcome, out.Detail = failed, "asked for by the annotation, and not on: "+strings.TrimSuffix(reason+": "+message, ": ")
		out.Fix = fmt.Sprintf("kubectl -n %s logs %s; on the node: temper safe-mode on, which says who holds it", n.agent.Namespace, n.agent.Name)
		return out
	case n.taken():
		out.Outcome, out.Detail = failed, "on, and Temper is attached: "+message
		out.Fix = "temper stop on the node, which ends a temper run"
		return out
	}
	out.Detail = "on for " + age(since, now)
	if !since.IsZero() && now.Sub(since) > safeModeForgotten {
		out.Outcome, out.Detail = failed, out.Detail+": forgotten?"
		out.Fix = "kubectl temper safe-mode off " + n.Name
	}
	return out
}

func engineCheck(n node) check {
	r := n.report
	out := check{Subject: n.Name, Name: "engine", Outcome: passed, Detail: r.Engine + ", mode " + r.Mode}
	latched := r.Reason == agent.ReasonEjectLatched
	waits := r.Engine == kube.EngineSafe && !latched || r.Reason == agent.ReasonSettling
	if r.Mode != string(config.Enforce) || r.Engine == kube.EngineAttached || waits {
		return out
	}
	out.Outcome, out.Detail = failed, "not attached: "+strings.TrimSuffix(r.Reason+": "+r.Message, ": ")
	out.Fix = fmt.Sprintf("kubectl -n %s logs %s, unless a check below says it", n.agent.Namespace, n.agent.Name)
	if latched {
		out.Fix = fmt.Sprintf("kubectl describe node %s: its Events say why; then kubectl temper safe-mode on %s, and off", n.Name, n.Name)
	}
	return out
}
