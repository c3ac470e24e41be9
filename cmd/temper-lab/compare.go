// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/report"
)

func newCompare() *cobra.Command {
	var in, output string
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two record directories, or two arms of one, step by step",
		Long: `Compare prints how many times A's figures B's are, at every step that both have,
paired by seed, with the interval that drawing the seeds anew gives. A and B are
two record directories, whose arms are compared by name, or, with --in, two arms
of the records in one directory. Void windows take no part; it says how many there
are. Records that are not as they were written are refused.

` + exitCodes,
		Example: `  temper-lab compare out/before out/after
  temper-lab compare eevdf-tuned temper --in out/wakeup
  temper-lab compare out/before out/after -o json`,
		Args: exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := compare(args[0], args[1], in)
			if err != nil {
				return err
			}
			return printAs(cmd.OutOrStdout(), output, c, c.Text)
		},
	}
	cmd.Flags().StringVar(&in, "in", "", "the `directory` with the records of both arms")
	outputFlag(cmd, &output)
	return cmd
}

func compare(a, b, in string) (report.Comparison, error) {
	if in != "" {
		ladders, err := ladder.Read(in)
		if err != nil {
			return report.Comparison{}, err
		}
		return report.Arms(ladders, a, b)
	}
	for _, dir := range []string{a, b} {
		if _, err := os.Stat(filepath.Join(dir, bench.RecordFile)); err != nil {
			return report.Comparison{}, usageError{fmt.Errorf("%s is no directory with records; for arms, name the directory by --in", dir)}
		}
	}
	before, errA := ladder.Read(a)
	after, errB := ladder.Read(b)
	if err := errors.Join(errA, errB); err != nil {
		return report.Comparison{}, err
	}
	return report.Directories(before, after)
}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "`format`: text or json")
}

// knownFormat refuses a value of -o that printAs does not know.
func knownFormat(format string) error {
	if format != "text" && format != "json" {
		return fmt.Errorf("output %q: text or json", format)
	}
	return nil
}

// printAs writes value as JSON, or as text says.
func printAs(out io.Writer, format string, value any, text func(io.Writer) error) error {
	if format == "text" {
		return text(out)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return nil
}
