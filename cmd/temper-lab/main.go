// SPDX-License-Identifier: Apache-2.0

// Temper-lab measures: it boots guests with a real kernel and real servers, runs
// a scenario in each under another scheduler, keeps a record of every window
// and makes the report from the records.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes; the root command's help lists them.
const (
	exitOK = iota
	exitError
	exitUsage
	exitVoid
	exitUnsound
)

const exitCodes = `Exit codes:
  0  done, every window valid
  1  something failed; the message says what
  2  the command line was not understood
  3  done, but windows are void; the report says which and why
  4  records are not sound: edited, polluted or incomplete, or a rerun differs`

// errVoid is a campaign that ran to its end with void windows in it.
var errVoid = errors.New("some windows are void and enter no figure")

// usageError is a command line that was not understood.
type usageError struct{ error }

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "temper-lab: %s\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		if cmd.Name() == "help" {
			cmd = root
		}
		fmt.Fprintf(stderr, "try: %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	switch {
	case errors.Is(err, errUnsound):
		return exitUnsound
	case onlyVoid(err):
		return exitVoid
	}
	return exitError
}

// onlyVoid says whether nothing else is wrong than that windows are void.
func onlyVoid(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !onlyVoid(e) })
	}
	return errors.Is(err, errVoid)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "temper-lab",
		Short: "Measure schedulers on guests with a real kernel and real servers",
		Long: `Temper-lab boots guests with a real kernel and real servers, runs a scenario in
each under another scheduler, keeps a record of every window and makes the
report from the records.

` + exitCodes,
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
		PersistentPreRunE: checkLine,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(args[0])
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(newHelp())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if !cmd.HasParent() && cmd.Flags().NArg() > 0 { // its flags are those of no command
			return unknownCommand(cmd.Flags().Arg(0))
		}
		return usageError{err}
	})
	root.AddCommand(endsGuests(newDemo()), endsGuests(newRun()), endsGuests(newCampaign()), newVerify(), endsGuests(newRerun()), newLs(), newKernels(), newReport(), newCompare(), newTargets())
	return root
}

func unknownCommand(name string) error { return usageError{fmt.Errorf("unknown command %q", name)} }

// newHelp is cobra's, which calls it a success to know nothing of a command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Long:    "Help prints what COMMAND --help does; without one, the list of commands.",
		Example: "  temper-lab help run",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usageError{err}
			}
			if len(rest) > 0 {
				return unknownCommand(rest[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// endsGuests has a signal end the command's context instead of the program, so that
// its guests are ended and their files removed, which takes seconds. Further signals
// change nothing: they would leave the files. The other commands have nothing to end.
func endsGuests(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}

// checkLine refuses a flag or an argument that was given and says nothing: a variable
// that is not set stands neither for everything nor for this directory. Nor does it take
// a text that no record can hold, or a format that would be refused after all the work.
func checkLine(cmd *cobra.Command, args []string) error {
	var errs []error
	if slices.Contains(args, "") {
		errs = append(errs, errors.New("an argument is empty"))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		switch f.Value.Type() {
		case "int", "uint64", "duration":
			if value == "0" || value == "0s" || strings.HasPrefix(value, "-") {
				errs = append(errs, fmt.Errorf("--%s %s: want more than 0", f.Name, value))
			}
		case "string", "stringSlice", "intSlice", "stringArray":
			switch {
			case value == "" || value == "[]":
				errs = append(errs, fmt.Errorf("--%s is empty", f.Name))
			case !utf8.ValidString(value):
				errs = append(errs, fmt.Errorf("--%s %q: want UTF-8", f.Name, value))
			case f.Name == "output":
				errs = append(errs, knownFormat(value))
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// exactly is cobra.ExactArgs with our exit code.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
