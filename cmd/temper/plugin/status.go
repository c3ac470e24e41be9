// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
)

// nodeStatus is what status says of a node.
type nodeStatus struct {
	Node     string     `json:"node"`
	Attached bool       `json:"attached"`
	Engine   string     `json:"engine"`
	Reason   string     `json:"reason"`
	Message  string     `json:"message,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Kernel   string     `json:"kernel"`
	Agent    string     `json:"agent,omitempty"` // its pod
	// Stale is why the engine may be another by now.
	Stale string `json:"stale,omitempty"`
	// Silent is why the agent did not answer; what follows is its answer.
	Silent string       `json:"silent,omitempty"`
	Answer *agentAnswer `json:"answer,omitempty"`
}

type agentAnswer struct {
	Version    string `json:"version"`
	Mode       string `json:"mode"`
	Connected  bool   `json:"connected"`
	FencedCPUs int    `json:"fenced_cpus"`
	CPUs       int    `json:"cpus"`
	Lend       string `json:"lend"`
	Pods       int    `json:"pods"`
	Ejects     int    `json:"ejects"` // in the last hour
	// Taken is true while Temper runs the node for another process than the agent.
	Taken bool `json:"taken,omitempty"`
}

func (p *plugin) newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [NODE...]",
		Short: "Say which scheduler runs each node, and why",
		Long: `Say which scheduler runs each node, and why: all nodes that have Temper, or those
that are named or selected.

CRIT-CPUS are the CPUs in fences of critical pods, of those online; EJECTS are of the
last hour; AGE is the reason's. Below the table is what the figures cannot say.

While an agent is away its node is taken as not attached: the dead-man returns it to
the kernel's own scheduler. The exit code is 4 unless every node is attached.`,
		Example:           "  kubectl temper status\n  kubectl temper status -o json | jq '.nodes[] | select(.attached | not)'",
		ValidArgsFunction: p.completeNodes,
	}
	format := outputFlag(cmd, "text", "wide", "json", "yaml")
	selector := cmd.Flags().StringP("selector", "l", "", "labels of the nodes")
	cmd.RunE = action(func(ctx context.Context, args []string) error {
		c, err := p.open()
		if err != nil {
			return err
		}
		which := selection{names: args, selector: *selector}
		nodes, err := p.look(ctx, c, which)
		if err != nil {
			return err
		}
		if len(nodes) == 0 {
			return &failure{code: exitNotAttached, err: errors.New("no node has Temper"), fix: "kubectl temper doctor"}
		}
		return p.status(format, nodes, time.Now())
	})
	return cmd
}

func (p *plugin) status(format *output, nodes []node, now time.Time) error {
	var all []nodeStatus
	code := exitOK
	for _, n := range nodes {
		s := statusOf(n, now)
		if !s.Attached {
			code = exitNotAttached
		}
		all = append(all, s)
	}
	isData, err := p.data(format, map[string]any{"nodes": all})
	if err == nil && !isData {
		_, err = fmt.Fprintln(p.text, strings.Join(statusLines(all, format.value == "wide", now), "\n"))
	}
	if err == nil && code != exitOK {
		err = &failure{code: code} // the output has said it
	}
	return err
}

func statusOf(n node, now time.Time) nodeStatus {
	reason, message, since := n.reason()
	s := nodeStatus{
		Node: n.Name, Attached: n.attached(now), Engine: n.engine(), Reason: reason, Message: message,
		Kernel: n.Kernel, Stale: n.stale(now), Silent: n.silent,
	}
	if !since.IsZero() {
		s.Since = &since
	}
	if n.agent != nil {
		s.Agent = n.agent.Name
	}
	if r := n.report; r != nil {
		in, of := fenced(r)
		s.Answer = &agentAnswer{
			Version: r.Version, Mode: r.Mode, Connected: r.Connected, FencedCPUs: in, CPUs: of,
			Lend: r.Plan.Lend.String(), Pods: len(r.Pods), Ejects: r.Ejects, Taken: n.taken(),
		}
	}
	return s
}

func statusLines(all []nodeStatus, wide bool, now time.Time) []string {
	header := "NODE\tENGINE\tREASON\tKERNEL\tVERSION\tCRIT-CPUS\tEJECTS\tAGE"
	if wide {
		header += "\tMODE\tLEND\tPODS\tAGENT\tMESSAGE"
	}
	lines := view.Table(header, func(row func(...any)) {
		for _, s := range all {
			row(s.cells(wide, now)...)
		}
	})
	var notes []string
	for _, s := range all {
		if note := s.note(); note != "" {
			notes = append(notes, line(s.Node+": "+note))
		}
	}
	if len(notes) > 0 {
		lines = append(append(lines, ""), notes...)
	}
	return lines
}

func (s nodeStatus) cells(wide bool, now time.Time) []any {
	version, crit, ejects, mode, lend, pods := "-", "-", "-", "-", "-", "-"
	if a := s.Answer; a != nil {
		version, crit, ejects = a.Version, fmt.Sprintf("%d/%d", a.FencedCPUs, a.CPUs), strconv.Itoa(a.Ejects)
		mode, lend, pods = a.Mode, a.Lend, strconv.Itoa(a.Pods)
	}
	since := "-"
	if s.Since != nil {
		since = age(*s.Since, now)
	}
	engine := orDash(s.Engine)
	if s.Stale != "" && s.Engine != "" {
		engine += " (stale)"
	}
	cells := []any{s.Node, engine, orDash(s.Reason), s.Kernel, version, crit, ejects, since}
	if wide {
		cells = append(cells, mode, lend, pods, orDash(s.Agent), orDash(s.Message))
	}
	return cells
}

// note is what a person must know to read the row.
func (s nodeStatus) note() string {
	switch {
	case s.Stale != "":
		return "stale: " + s.Stale
	case s.Silent != "":
		return "the agent does not answer: " + s.Silent
	case !s.Answer.Connected:
		return "the agent has lost the API server; the plan in force stays"
	case s.Answer.Taken:
		return "Temper is attached: " + s.Message
	}
	return ""
}
