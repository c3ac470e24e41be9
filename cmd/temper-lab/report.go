// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/bench/report"
)

// reportFile is the page's name in a record directory.
const reportFile = "report.html"

func newReport() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "Make the report from the records in DIR",
		Long: `Report reads the records in DIR, judges every window again, prints the tables
and writes DIR/` + reportFile + `, one page that needs nothing else. It uses nothing
but the records.`,
		Example: "  temper-lab report out/demo-20261120-091500",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeReport(cmd.OutOrStdout(), args[0])
		},
	}
}

// writeReport prints the report on dir's records and writes its page.
func writeReport(out io.Writer, dir string) error {
	r, err := report.Read(dir)
	if err != nil {
		return err
	}
	if err := r.Text(out); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	path := filepath.Join(dir, reportFile)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create page: %w", err)
	}
	if err := r.HTML(f); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	fmt.Fprintf(out, "\npage: %s\n", path)
	if r.Void > 0 {
		return fmt.Errorf("%w: %d of %d", errVoid, r.Void, len(r.Records))
	}
	return nil
}
