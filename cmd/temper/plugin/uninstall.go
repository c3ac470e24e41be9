// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/kube"
)

func (p *plugin) newUninstall() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Temper from the cluster and say whether anything is left",
		Long: `Remove Temper from the cluster, in the order that leaves nothing behind: safe mode on
every node, until each has said that the kernel's own scheduler runs it; then the
objects of the install, the agents first; then the label, the annotation and the
condition on the nodes. A Helm release stays Helm's to end, and is named.

It may be run in any state, and again. --verify only looks: the exit code is 0 if
nothing is left and 1 otherwise. Of an install in another namespace than the one given
nothing is deleted: the error names that namespace.`,
		Example: "  kubectl temper uninstall --dry-run\n  kubectl temper uninstall --yes\n  kubectl temper uninstall --verify",
		Args:    cobra.NoArgs,
	}
	verify := cmd.Flags().Bool("verify", false, "only say what is left")
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	dryRun := cmd.Flags().Bool("dry-run", false, "only say what would be done")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "how long to wait for the nodes, and then for the objects")
	cmd.RunE = action(func(ctx context.Context, _ []string) error {
		c, err := p.open()
		if err != nil {
			return err
		}
		if err := p.rightNamespace(ctx, c, *verify); err != nil {
			return err
		}
		left, err := p.leftovers(ctx, c)
		if err != nil {
			return err
		}
		if *verify {
			return p.verify(left)
		}
		if left.none() {
			_, err := fmt.Fprintln(p.text, "nothing is left of Temper")
			return err
		}
		if err := p.list("to remove:", left); err != nil || *dryRun {
			return err
		}
		if !*yes && !p.confirmed() {
			return errors.New("uninstall: not confirmed")
		}
		return p.uninstall(ctx, c, left, *timeout)
	})
	return cmd
}

// rightNamespace refuses to look for an install where it is not: what belongs to
// no namespace would be found and deleted, the agents would not.
func (p *plugin) rightNamespace(ctx context.Context, c *kube.Cluster, verify bool) error {
	in, err := c.InstalledIn(ctx)
	if kube.IsForbidden(err) {
		_, err := fmt.Fprintln(p.text, "not looked for: agents in other namespaces, whose pods you may not list")
		return err
	}
	if err != nil || len(in) == 0 || slices.Contains(in, p.installed()) {
		return err
	}
	fix := "kubectl temper uninstall -n " + in[0]
	if verify {
		fix += " --verify"
	}
	return &failure{
		code: exitError, fix: fix,
		err: fmt.Errorf("uninstall Temper from namespace %s: it is installed in namespace %s", p.installed(), strings.Join(in, ", ")),
	}
}

// leftovers are what is there of an install.
type leftovers struct {
	objects  []kube.Object
	nodes    []node // with an agent or traces
	releases []string
}

func (p *plugin) leftovers(ctx context.Context, c *kube.Cluster) (left leftovers, err error) {
	if left.objects, err = c.Objects(ctx, p.installed()); err != nil {
		return left, err
	}
	if left.nodes, err = p.look(ctx, c, selection{}); err != nil {
		return left, err
	}
	left.releases, err = c.HelmReleases(ctx, p.installed(), left.objects)
	if kube.IsForbidden(err) { // Helm keeps its releases in secrets, which few may list
		err = nil
	}
	return left, err
}

func (l leftovers) none() bool {
	return len(l.objects) == 0 && len(l.nodes) == 0 && len(l.releases) == 0
}

func (l leftovers) lines() []string {
	var out []string
	for _, o := range l.objects {
		out = append(out, o.String())
	}
	for _, n := range l.nodes {
		out = append(out, "Node "+n.Name+": "+strings.Join(tracesOn(n), ", "))
	}
	for _, name := range l.releases {
		out = append(out, "Helm release "+name)
	}
	return out
}

func tracesOn(n node) []string {
	var traces []string
	if n.agent != nil {
		traces = append(traces, "agent "+n.agent.Name)
	}
	if n.Engine != "" {
		traces = append(traces, "label "+kube.EngineLabel)
	}
	if n.Annotated {
		traces = append(traces, "annotation "+kube.SafeModeAnnotation)
	}
	if n.Condition != nil {
		traces = append(traces, "condition "+kube.ConditionType)
	}
	return traces
}

func (p *plugin) list(head string, left leftovers) error {
	fmt.Fprintln(p.text, head)
	for _, text := range left.lines() {
		if _, err := fmt.Fprintf(p.text, "  %s\n", line(text)); err != nil {
			return err
		}
	}
	return nil
}

func (p *plugin) verify(left leftovers) error {
	if left.none() {
		_, err := fmt.Fprintln(p.text, "nothing is left of Temper")
		return err
	}
	if err := p.list("left:", left); err != nil {
		return err
	}
	fix := "kubectl temper uninstall" + p.flag()
	if len(left.objects) == 0 && len(left.nodes) == 0 {
		fix = fmt.Sprintf("helm uninstall %s -n %s", left.releases[0], p.installed())
	}
	return &failure{code: exitError, fix: fix}
}

func (p *plugin) confirmed() bool {
	fmt.Fprint(p.text, "Remove all of this? Type yes: ")
	answer, _ := bufio.NewReader(p.Stdin).ReadString('\n') // no answer is no
	return strings.TrimSpace(answer) == "yes"
}

func (p *plugin) uninstall(ctx context.Context, c *kube.Cluster, left leftovers, timeout time.Duration) error {
	if err := p.takeOff(ctx, c, timeout); err != nil {
		return err
	}
	if err := p.deleteObjects(ctx, c, timeout); err != nil {
		return err
	}
	if err := p.cleanNodes(ctx, c); err != nil {
		return err
	}
	for _, name := range left.releases {
		fmt.Fprintf(p.text, "Helm still lists its release, to end with: helm uninstall %s -n %s\n", line(name), p.installed())
	}
	return nil
}

// takeOff returns when no node that can be asked has the scheduler. Nodes may have
// come and gone since the list was shown.
func (p *plugin) takeOff(ctx context.Context, c *kube.Cluster, timeout time.Duration) error {
	nodes, err := p.look(ctx, c, selection{})
	if err != nil {
		return err
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	if len(names) == 0 {
		return nil
	}
	if _, err := p.annotate(ctx, c, names, true); err != nil {
		return err
	}
	away, err := p.await(ctx, c, names, true, timeout)
	if err == nil && len(away) > 0 {
		fmt.Fprintf(p.text, "goes on without %s: %s\n", line(strings.Join(away, ", ")), p.whileAway(ctx, c))
	}
	return err
}

// deleteObjects deletes until nothing is left: what is deleted late may have
// made something meanwhile.
func (p *plugin) deleteObjects(ctx context.Context, c *kube.Cluster, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		objects, err := c.Objects(ctx, p.installed())
		if err != nil {
			return err
		}
		if len(objects) == 0 {
			return nil
		}
		for _, o := range objects {
			if o.Deleting {
				continue
			}
			if err := c.Delete(ctx, o); err != nil {
				return err
			}
			fmt.Fprintf(p.text, "deleted %s\n", line(o.String()))
		}
		if !p.pause(ctx) {
			return &failure{
				code: exitError, err: fmt.Errorf("%s not gone after %s: %s", view.Count(len(objects), "object"), timeout, objects[0]),
				fix: "kubectl temper uninstall" + p.flag() + " again; finalizers of others may hold it",
			}
		}
	}
}

// cleanNodes comes last: an agent that still ran would put it all back.
func (p *plugin) cleanNodes(ctx context.Context, c *kube.Cluster) error {
	nodes, err := c.Nodes(ctx, "")
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if !n.Touched() {
			continue
		}
		if err := c.CleanNode(ctx, n.Name); err != nil && !kube.IsNotFound(err) {
			return err
		}
		fmt.Fprintf(p.text, "cleaned node %s\n", line(n.Name))
	}
	return nil
}
