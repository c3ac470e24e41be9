// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/bench/targets"
)

func newTargets() *cobra.Command {
	var records, output, readme string
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "Say which targets the committed records show to be met",
		Long: `Targets computes every target of the design from the records below --records,
and from nothing else. A target is met when its whole interval is within the
bound, at the worst step; where no record measures it, or too little of one is
there, it is neither met nor missed. Of a step that several records hold, the newest
counts, by the date that their directories' names begin with, and of one day's the
one with the most seeds; one of fewer than four seeds replaces no other. Only virtual
time with a clock per vCPU counts. A record that is not as it was written is an error,
and so is no record at all. With --readme the table between the marks in that file is
written anew.

Exit codes: 0, met or not; 1 if something failed; 2 if the command line was not
understood; 4 if records are not sound.`,
		Example: `  temper-lab targets
  temper-lab targets -o json
  temper-lab targets --records out/bench
  temper-lab targets --readme README.md`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ladders, err := targets.Load(records)
			if err != nil {
				return err
			}
			all := targets.All(records, ladders)
			if readme != "" {
				return rewriteTargets(readme, all)
			}
			return printAs(cmd.OutOrStdout(), output, all, func(w io.Writer) error { return targets.Text(w, all, targets.LeftOut(ladders)) })
		},
	}
	cmd.Flags().StringVar(&records, "records", targets.Records, "the `directory` of record directories")
	cmd.Flags().StringVar(&readme, "readme", "", "write the table into this `file`")
	outputFlag(cmd, &output)
	return cmd
}

func rewriteTargets(path string, all []targets.Target) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	text, err = targets.Splice(text, all)
	if err != nil {
		return fmt.Errorf("rewrite %s: %w", path, err)
	}
	return writeFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
