// SPDX-License-Identifier: Apache-2.0

// Package plugin is kubectl temper: it says what the nodes of a cluster do, and
// asks them to leave off, through the API server. It decides nothing.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/kube"
)

// The exit codes, which are those of temper on a node as far as they go.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotAttached = 4
	exitUnfit       = 6
)

// Name is what the program is called when kubectl finds it.
const Name = "kubectl-temper"

// Options are what the plugin is given.
type Options struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Version        string
	Poll           time.Duration // between two looks while it waits
}

// plugin is what the subcommands share.
type plugin struct {
	Options
	text io.Writer // Stdout for people: no control character passes

	kubeconfig, context, namespace string
}

// failure is an error with its exit code and the way out.
type failure struct {
	code int
	err  error  // nil if the output has said it
	fix  string // what to try, empty if the error says it
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// Execute runs one command line and returns its exit code.
func Execute(ctx context.Context, o Options, args []string) int {
	p := &plugin{Options: o, text: clean{o.Stdout}}
	root := p.root()
	root.SetArgs(args)
	root.SetOut(o.Stdout)
	root.SetErr(o.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if cmd.Name() == "help" {
		cmd = root
	}
	f, ok := errors.AsType[*failure](err)
	if !ok { // cobra's own: the subcommands return nothing else
		f = &failure{code: exitUsage, err: err, fix: cmd.CommandPath() + " --help"}
	}
	if f.err != nil {
		fmt.Fprintf(clean{o.Stderr}, "kubectl temper: %s\n", line(f.err.Error()))
	}
	if f.fix != "" {
		fmt.Fprintf(clean{o.Stderr}, "try: %s\n", line(f.fix))
	}
	return f.code
}

func (p *plugin) root() *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-temper",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl temper"},
		Short:       "See and steer Temper on the nodes of a cluster",
		Long: `See and steer Temper on the nodes of a cluster.

It speaks to the API server alone; of a node it knows what the node's object says,
and what its agent answers through the API server.

The exit codes: 0 done, 1 something failed or is left, 2 the command line was not
understood, 4 not every node is attached, 6 doctor found something.`,
		Example:       "  kubectl temper status\n  kubectl temper explain front-0 -n shop\n  kubectl temper safe-mode on --all",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl)")
	flags.StringVar(&p.context, "context", "", "context of the kubeconfig (default: the current one)")
	flags.StringVarP(&p.namespace, "namespace", "n", "",
		"namespace that Temper is installed in, "+kube.Namespace+" if not given; of explain: the pod's")
	root.AddCommand(p.newStatus(), p.newTop(), p.newExplain(), p.newDoctor(), p.newSafeMode(), p.newUninstall(), p.newVersion())
	KnowTopics(root)
	return root
}

// KnowTopics has root's help refuse a command that is not there: cobra's calls it a
// success.
func KnowTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		show := help.Run
		help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
			if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
				return fmt.Errorf("unknown command %q for %q", strings.Join(args, " "), root.CommandPath())
			}
			show(cmd, args)
			return nil
		}
	}
}

func (p *plugin) newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program; doctor compares the agents'",
		Example: "  kubectl temper version",
		Args:    cobra.NoArgs,
		RunE: action(func(context.Context, []string) error {
			fmt.Fprintf(p.text, "kubectl-temper %s %s %s/%s\n", p.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		}),
	}
}

// action makes every error of a subcommand carry its exit code, so that those
// without one are cobra's: usage.
func action(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd.Context(), args)
		if _, ok := errors.AsType[*failure](err); ok || err == nil {
			return err
		}
		f := &failure{code: exitError, err: err}
		if kube.IsForbidden(err) {
			f.fix = "the same as who may: docs/kubectl.md says what is needed"
		}
		return f
	}
}

func (p *plugin) open() (*kube.Cluster, error) { return kube.OpenCluster(p.kubeconfig, p.context) }

// installed is the namespace that Temper is installed in.
func (p *plugin) installed() string {
	if p.namespace == "" {
		return kube.Namespace
	}
	return p.namespace
}

// flag names that namespace in a command to try, where it must be.
func (p *plugin) flag() string {
	if p.installed() == kube.Namespace {
		return ""
	}
	return " -n " + p.installed()
}

// completeNodes offers the names of nodes.
func (p *plugin) completeNodes(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	c, err := p.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	nodes, err := c.Nodes(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return offer(names, given, prefix)
}

func offer(names, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, prefix) || slices.Contains(given, name)
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
