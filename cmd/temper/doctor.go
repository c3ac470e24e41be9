// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/sched"
)

func newDoctor(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this node can run Temper, and say what to do if not",
		Long: `Check every fact that attaching depends on: what was seen, and for each that
fails its reason, which is one word of a closed list, and the way out.

Nothing is attached or changed. The exit code is that of the first check that
fails: 6 if this node cannot run Temper, 5 if another scheduler holds it.`,
		Example: "  temper doctor\n  temper doctor -o json | jq '.[] | select(.ok | not)'",
		Args:    cobra.NoArgs,
	}
	format := outputFlag(cmd)
	cmd.RunE = action(func(cmd *cobra.Command) error {
		checks := n.preflight(pinDir(cmd))
		var err error
		if *format == outputJSON {
			err = writeJSON(n.stdout, checks)
		} else {
			err = writeChecks(n.stdout, checks)
		}
		if err != nil {
			return err
		}
		for _, c := range checks {
			if !c.OK {
				return &failure{code: codeOf(c.Reason)} // the output has said it
			}
		}
		return nil
	})
	return cmd
}

func writeChecks(w io.Writer, checks []sched.Check) error {
	failed := 0
	for _, c := range checks {
		if c.OK {
			fmt.Fprintf(w, "ok    %s: %s\n", c.Name, c.Detail)
			continue
		}
		failed++
		fmt.Fprintf(w, "FAIL  %s: %s: %s\n", c.Name, c.Reason, c.Detail)
		if c.Fix != "" {
			fmt.Fprintf(w, "      try: %s\n", c.Fix)
		}
	}
	verdict := "this node can run Temper"
	if failed > 0 {
		verdict = fmt.Sprintf("%s of %d failed: this node cannot run Temper now", view.Count(failed, "check"), len(checks))
	}
	if _, err := fmt.Fprintln(w, verdict); err != nil {
		return fmt.Errorf("write checks: %w", err)
	}
	return nil
}
