// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// explanation is what Temper does with a pod, and why.
type explanation struct {
	Pod   string    `json:"pod"`
	Node  string    `json:"node,omitempty"`
	Phase string    `json:"phase"`
	QOS   string    `json:"qos"`
	Tier  tier.Tier `json:"tier"`
	Why   string    `json:"why"`
	// Engine says what its node's engine does about all this.
	Engine string `json:"engine"`

	RequestCPUs float64 `json:"request_cpus"`
	Fence       []int   `json:"fence,omitempty"`
	NoFence     string  `json:"no_fence,omitempty"`
	// Exclusive are the CPUs that kubelet's CPU manager gave to it.
	Exclusive []int          `json:"exclusive,omitempty"`
	Pinning   []kube.Pinning `json:"static_cpu_manager"`
	NUMA      string         `json:"numa,omitempty"`

	LimitCPUs float64            `json:"limit_cpus"` // 0: none
	Limit     string             `json:"limit"`      // what becomes of it
	Limits    []sched.LimitStats `json:"limits,omitempty"`
}

func (p *plugin) newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Say which tier a pod has and why, its fence, and what becomes of its CPU limit",
		Long: `Say which tier a pod has and why; which CPUs are fenced for it, or why none are, and
whether they lie in one NUMA node; what Temper does with its CPU limit; and whether
kubelet's static CPU manager would give its containers CPUs of their own.`,
		Example:           "  kubectl temper explain front-0 -n shop\n  kubectl temper explain front-0 -o json | jq .why",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completePods,
	}
	format := outputFlag(cmd, "text", "json", "yaml")
	installed := cmd.Flags().String("agent-namespace", kube.Namespace, "namespace that Temper is installed in")
	cmd.RunE = action(func(ctx context.Context, args []string) error {
		c, err := p.open()
		if err != nil {
			return err
		}
		namespace := p.namespace
		if namespace == "" {
			namespace = c.Namespace
		}
		p.namespace = *installed
		pod, err := c.Pod(ctx, namespace, args[0], p.thresholds(ctx, c))
		if err != nil {
			return err
		}
		on := node{silent: "it is not on a node yet"}
		if pod.Node != "" {
			nodes, err := p.look(ctx, c, selection{names: []string{pod.Node}})
			if err != nil {
				return err
			}
			on = nodes[0]
		}
		e := explain(pod, namespace+"/"+args[0], on, time.Now())
		isData, err := p.data(format, e)
		if err != nil || isData {
			return err
		}
		return p.explanation(e)
	})
	return cmd
}

func (p *plugin) completePods(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	c, err := p.open()
	if err != nil || len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	namespace := p.namespace
	if namespace == "" {
		namespace = c.Namespace
	}
	names, err := c.PodNames(cmd.Context(), namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return offer(names, given, prefix)
}

// explain puts together what the pod's object says and, where it is known, what
// its node's agent does.
func explain(pod kube.PodState, name string, on node, now time.Time) explanation {
	e := explanation{
		Pod: name, Node: pod.Node, Phase: pod.Phase, QOS: pod.QOS, Tier: pod.Tier, Why: pod.Why,
		RequestCPUs: cpus(pod.MilliCPU), LimitCPUs: cpus(pod.MilliLimit), Pinning: pod.Containers,
	}
	if pod.Ended {
		e.Engine = "the pod has ended: nothing is done for it"
		e.NoFence, e.Limit = "the pod has ended", "the pod has ended"
		return e
	}
	e.Engine = engineText(on, now)
	e.limit(on.report, policy.Pod{}, on.attached(now) || on.taken())
	if on.report == nil {
		e.NoFence = "not known: " + on.silent
		return e
	}
	for _, known := range on.report.Pods {
		if known.UID == pod.UID {
			e.known(on, known, now)
			return e
		}
	}
	e.NoFence = "its agent has not heard of the pod yet"
	return e
}

func cpus(milli int64) float64 { return float64(milli) / 1000 }

func engineText(on node, now time.Time) string {
	reason, message, _ := on.reason()
	switch stale := on.stale(now); {
	case on.Name == "":
		return on.silent
	case stale != "":
		return "not known: " + stale
	case on.attached(now):
		return "attached: what follows holds"
	default:
		text := on.engine() + ": the kernel's own scheduler runs this node, what follows is what would be"
		if on.taken() {
			text = on.engine() + ": Temper runs this node by another plan, what follows is what would be"
		}
		if reason != "" {
			text += " (" + strings.TrimSuffix(reason+": "+message, ": ") + ")"
		}
		return text
	}
}

// known adds what the agent makes of the pod.
func (e *explanation) known(on node, pod policy.Pod, now time.Time) {
	r := on.report
	e.Tier, e.Why, e.Exclusive = pod.Tier, pod.Why, pod.Exclusive
	e.NoFence = "only critical pods have one"
	if pod.Tier == tier.Critical {
		e.NoFence = "its cgroup is not found yet"
		e.fence(r, pod)
	}
	e.NUMA = numaText(r.Topology, e.Fence, e.Exclusive)
	e.limit(r, pod, on.attached(now) || on.taken())
}

func (e *explanation) fence(r *agent.Report, pod policy.Pod) {
	for _, g := range r.Plan.Groups {
		if g.Cgroup != pod.Cgroup || pod.Cgroup == "" {
			continue
		}
		switch e.Fence, e.NoFence = g.Fence, ""; {
		case len(g.Fence) > 0:
		case g.NotFenced != "":
			e.NoFence = g.NotFenced
		case pod.MilliCPU == 0:
			e.NoFence = "it requests no CPU"
		default:
			e.NoFence = "none was planned"
		}
	}
}

func numaText(top topology.Topology, fence, exclusive []int) string {
	what, on := "its fence", fence
	if len(exclusive) > 0 {
		what, on = "its exclusive CPUs", exclusive
	}
	switch nodes := numa(top, on); {
	case len(on) == 0 || len(nodes) == 0:
		return ""
	case len(nodes) == 1:
		return fmt.Sprintf("%s: all in NUMA node %d", what, nodes[0])
	default:
		return fmt.Sprintf("%s: spread over NUMA nodes %s, memory of another node is slower", what, topology.FormatList(nodes))
	}
}

// limit says who holds the pod's CPU limit. Its containers' count, too.
func (e *explanation) limit(r *agent.Report, pod policy.Pod, attached bool) {
	if r != nil && pod.Cgroup != "" {
		for _, l := range r.Limits {
			if l.Cgroup == pod.Cgroup || strings.HasPrefix(l.Cgroup, pod.Cgroup+"/") {
				e.Limits = append(e.Limits, l)
			}
		}
	}
	switch {
	case len(e.Limits) > 0 && attached:
		e.Limit = "held by Temper, as pace: threads wait for the exact next grant"
	case e.LimitCPUs == 0:
		e.Limit = "none"
	case r == nil:
		e.Limit = "not known who holds it: the agent did not answer"
	case !attached:
		e.Limit = "held by the kernel, by throttling"
	default:
		e.Limit = "not held: Temper is attached and has no such limit; kubectl temper doctor says what this kernel allows"
	}
}

func (p *plugin) explanation(e explanation) error {
	w := tabwriter.NewWriter(p.text, 0, 0, 2, ' ', 0)
	row := func(key, value string) { fmt.Fprintf(w, "%s\t%s\n", key, line(value)) }
	row("pod", fmt.Sprintf("%s, %s, %s", e.Pod, e.Phase, e.QOS))
	row("node", orDash(e.Node))
	row("engine", e.Engine)
	row("tier", fmt.Sprintf("%s: %s", e.Tier, e.Why))
	row("request", fmt.Sprintf("%g CPUs", e.RequestCPUs))
	if len(e.Fence) > 0 {
		row("fence", topology.FormatList(e.Fence))
	} else {
		row("fence", "none: "+e.NoFence)
	}
	if len(e.Exclusive) > 0 {
		row("exclusive", topology.FormatList(e.Exclusive)+", from kubelet's CPU manager")
	}
	if e.NUMA != "" {
		row("numa", e.NUMA)
	}
	if e.LimitCPUs > 0 {
		row("limit", fmt.Sprintf("%g CPUs, %s", e.LimitCPUs, e.Limit))
	} else {
		row("limit", e.Limit)
	}
	for _, c := range e.Pinning {
		row("static "+c.Container, pinningText(c))
	}
	if err := w.Flush(); err != nil || len(e.Limits) == 0 {
		return err
	}
	return p.limits(e.Limits)
}

func pinningText(c kube.Pinning) string {
	if c.CPUs > 0 {
		return view.Count(int(c.CPUs), "CPU") + " of its own under kubelet's static CPU manager"
	}
	return "no CPU of its own under kubelet's static CPU manager: " + c.WhyNot
}

func (p *plugin) limits(limits []sched.LimitStats) error {
	lines := view.Table("LIMIT\tUSED\tPACED\tPERIODS\tWAITING\tLONGEST WAIT\tLONGEST STOP\tCGROUP", func(row func(...any)) {
		for _, l := range limits {
			row(view.LimitText(l), view.Short(l.Used), view.Short(l.Paced), l.PacedPeriods, l.Waiting,
				view.Short(l.LongestWait), view.Short(l.LongestStop), view.LimitedCgroup(l))
		}
	})
	_, err := fmt.Fprintf(p.text, "\n%s\n", strings.Join(lines, "\n"))
	return err
}
