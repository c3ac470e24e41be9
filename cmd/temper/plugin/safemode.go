// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/kube"
)

// whileAway is what becomes of a node that nobody can be asked to change.
func (p *plugin) whileAway(ctx context.Context, c *kube.Cluster) string {
	a, read := p.agentConfig(ctx, c)
	within := fmt.Sprintf("within %s (deadMan)", a.DeadMan)
	if !read {
		within = fmt.Sprintf("within deadMan, %s unless it was set", a.DeadMan)
	}
	return "the dead-man returns it to the kernel's own scheduler " + within +
		"; what is pinned there goes with a reboot or with: rm -r /sys/fs/bpf/temper*"
}

func (p *plugin) newSafeMode() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "safe-mode on|off NODE...|--all",
		Short: "Take the scheduler off nodes, at once and until it is allowed again",
		Long: `Take the scheduler off nodes, at once and until it is allowed again: "on" annotates
the nodes, whose agents then return them to the kernel's own scheduler and remove what
is pinned; "off" removes the annotation. Pods go on running either way.

--all are all nodes, those without an agent, too: one that comes later heeds it.`,
		Example: "  kubectl temper safe-mode on node-a\n  kubectl temper safe-mode on --all\n  kubectl temper safe-mode off node-a --timeout 2m",
		Args:    cobra.MinimumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(given) == 0 {
				return offer([]string{"on", "off"}, nil, prefix)
			}
			return p.completeNodes(cmd, given, prefix)
		},
	}
	all := cmd.Flags().Bool("all", false, "all nodes")
	noWait := cmd.Flags().Bool("no-wait", false, "do not wait until the nodes say so")
	timeout := cmd.Flags().Duration("timeout", 30*time.Second, "how long to wait")
	cmd.RunE = action(func(ctx context.Context, args []string) error {
		on, names := args[0] == "on", args[1:]
		switch {
		case !on && args[0] != "off":
			return &failure{code: exitUsage, err: fmt.Errorf("%q is neither on nor off", args[0])}
		case *all == (len(names) > 0):
			return &failure{code: exitUsage, err: errors.New("name nodes, or say --all")}
		}
		c, err := p.open()
		if err != nil {
			return err
		}
		names, err = p.annotate(ctx, c, names, on)
		if err != nil || *noWait {
			return err
		}
		away, err := p.await(ctx, c, names, on, *timeout)
		if err == nil && on && len(away) > 0 {
			fmt.Fprintf(p.text, "of a node whose agent is away: %s\n", p.whileAway(ctx, c))
		}
		return err
	})
	return cmd
}

// annotate asks the named nodes, or all of them, to be in safe mode or not. It
// returns their names.
func (p *plugin) annotate(ctx context.Context, c *kube.Cluster, names []string, on bool) ([]string, error) {
	states, err := c.Nodes(ctx, "")
	if err != nil {
		return nil, err
	}
	is := map[string]kube.NodeState{}
	every := len(names) == 0
	for _, s := range states {
		is[s.Name] = s
		if every {
			names = append(names, s.Name)
		}
	}
	var errs []error
	for _, name := range names {
		s, ok := is[name]
		if !ok {
			errs = append(errs, fmt.Errorf("there is no node %s", name))
		}
		if !ok || s.SafeMode == on && s.Annotated == on {
			continue
		}
		err := c.SetSafeMode(ctx, name, on)
		if kube.IsNotFound(err) { // it went meanwhile
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(p.text, "%s: safe mode asked %s\n", line(name), onOff(on))
	}
	return names, errors.Join(errs...)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// await returns when every named node says that safe mode is on or off, but for
// those that are gone, and those whose agents are away, which it returns.
func (p *plugin) await(ctx context.Context, c *kube.Cluster, names []string, on bool, timeout time.Duration) (away []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said := map[string]string{}
	waiting := names
	for {
		nodes, err := p.look(ctx, c, selection{names: names, there: true})
		if kube.IsForbidden(err) {
			return nil, err
		}
		if err == nil { // the API server may be away for a moment
			away, waiting = p.progress(nodes, on, said)
		}
		if len(waiting) == 0 {
			return away, nil
		}
		if !p.pause(ctx) {
			return away, gaveUp(waiting, on, timeout, err)
		}
	}
}

// progress prints of each node what was not said of it yet.
func (p *plugin) progress(nodes []node, on bool, said map[string]string) (away, waiting []string) {
	for _, n := range nodes {
		state, done := safeModeOf(n, on)
		if said[n.Name] != state {
			said[n.Name] = state
			fmt.Fprintln(p.text, line(n.Name+": "+state))
		}
		switch {
		case n.away():
			away = append(away, n.Name)
		case !done:
			waiting = append(waiting, n.Name)
		}
	}
	return away, waiting
}

func gaveUp(waiting []string, on bool, timeout time.Duration, last error) error {
	err := fmt.Errorf("switch safe mode %s: not done after %s on %s: %s",
		onOff(on), timeout, view.Count(len(waiting), "node"), strings.Join(waiting, ", "))
	if last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	fix := "kubectl temper status " + strings.Join(waiting, " ")
	if on {
		fix += "; a temper run on a node is ended there, with temper stop"
	} else {
		fix += "; a node stays in safe mode while the file /run/temper/safe-mode is on it: remove it there"
	}
	return &failure{code: exitError, err: err, fix: fix}
}

// safeModeOf says how far a node is.
func safeModeOf(n node, on bool) (state string, done bool) {
	reason, message, _ := n.reason()
	safe := n.engine() == kube.EngineSafe && reason != agent.ReasonEjectLatched
	switch {
	case n.agent == nil:
		return "no agent runs here", false
	case n.away():
		return "the agent is away: " + n.stale(time.Now()), false
	case on && safe && n.taken():
		return "not yet: Temper is attached: " + message, false
	case on && safe:
		return "safe mode is on, the kernel's own scheduler runs it", true
	case !on && !safe:
		return "safe mode is off: " + strings.TrimSuffix(reason+": "+message, ": "), true
	case on:
		return "not yet: " + orDash(n.engine()), false
	}
	return "still in safe mode: " + orDash(message), false
}

// pause is false when ctx ends.
func (p *plugin) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(p.Poll):
		return true
	}
}
