// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/temper-sched/temper/cmd/temper/plugin"
	"github.com/temper-sched/temper/internal/sched"
)

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, n node, args []string) int {
	root := newRoot(n)
	root.SetArgs(args)
	root.SetOut(n.stdout)
	root.SetErr(n.stderr)
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
		f.report(n.stderr)
	}
	return f.code
}

func newRoot(n node) *cobra.Command {
	root := &cobra.Command{
		Use:   "temper",
		Short: "Let background work use the idle CPUs of critical services",
		Long: `Temper lets background work use the idle CPUs of a node's critical services and
takes them back the moment a critical thread wakes.

A plan file says which cgroup is in which tier. "temper run" puts it in force;
every failure ends in the kernel's own scheduler.`,
		Args:              cobra.NoArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return noneEmpty(cmd) },
	}
	root.PersistentFlags().String("pin-dir", sched.DefaultPinDir, "where the scheduler is pinned, below a bpffs mount")
	root.AddCommand(
		newRun(n), newApply(n), newStatus(n), newTop(n), newStop(n), newSafeMode(n), newDoctor(n), newVersion(n),
		&cobra.Command{Use: "exit-codes", Short: "The exit codes", Long: exitCodesHelp()},
	)
	plugin.KnowTopics(root)
	return root
}

// noneEmpty refuses a flag that was given and says nothing, as --pin-dir "$UNSET": where
// nothing is pinned, an attached scheduler passes for somebody else's.
func noneEmpty(cmd *cobra.Command) error {
	var errs []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			errs = append(errs, fmt.Errorf("--%s is empty", f.Name))
		}
	})
	return errors.Join(errs...)
}

// action makes every error of a subcommand carry its exit code, so that those
// without one are cobra's: usage.
func action(run func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := run(cmd); err != nil {
			return asFailure(err)
		}
		return nil
	}
}

func pinDir(cmd *cobra.Command) string {
	dir, err := cmd.Flags().GetString("pin-dir")
	if err != nil {
		panic(err) // every subcommand inherits the flag
	}
	if dir == "" { // the default
		return dir
	}
	return filepath.Clean(dir)
}

// output is the value of -o.
type output string

const (
	outputText output = "text"
	outputJSON output = "json"
)

func (o *output) String() string { return string(*o) }

// Set is called by the flag parser.
func (o *output) Set(text string) error {
	switch output(text) {
	case outputText, outputJSON:
		*o = output(text)
		return nil
	}
	return fmt.Errorf("unknown format %q: one of %s, %s", text, outputText, outputJSON)
}

// Type names the value in help texts.
func (o *output) Type() string { return "format" }

func outputFlag(cmd *cobra.Command) *output {
	o := outputText
	cmd.Flags().VarP(&o, "output", "o", "text or json")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{string(outputText), string(outputJSON)}, cobra.ShellCompDirectiveNoFileComp)))
	return &o
}

func fileFlag(cmd *cobra.Command) *string {
	file := cmd.Flags().StringP("file", "f", "", "plan file")
	cobra.CheckErr(cmd.MarkFlagRequired("file"))
	cobra.CheckErr(cmd.MarkFlagFilename("file", "yaml", "yml"))
	return file
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
