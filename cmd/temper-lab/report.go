// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/bench/report"
)

// What a report leaves in a record directory.
const (
	reportFile  = "report.html"
	summaryFile = "REPORT.md"
)

func newReport() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "Make the report from the records in DIR",
		Long: `Report reads the records in DIR, judges every window again, prints the tables
and writes DIR/` + summaryFile + `, which is to be committed beside the records, and
DIR/` + reportFile + `, one page that needs nothing else. It uses nothing but the
records. Where a line is not as it was written, is there twice or is of another
campaign, nothing is written; where windows of the plan are missing the report says
so.

` + exitCodes,
		Example: "  temper-lab report out/demo-20261120-091500",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeReport(cmd.OutOrStdout(), args[0])
		},
	}
}

// writeReport prints the report on dir's records and writes its files.
func writeReport(out io.Writer, dir string) error {
	r, err := report.Read(dir)
	if err != nil {
		return err
	}
	if err := r.Text(out); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	if err := writePages(dir, r); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nsummary: %s\npage: %s\n", filepath.Join(dir, summaryFile), filepath.Join(dir, reportFile))
	if windows, void := r.Windows(); void > 0 {
		return fmt.Errorf("%w: %d of %d", errVoid, void, windows)
	}
	return nil
}

// writePages writes what a report leaves in a record directory.
func writePages(dir string, r *report.Report) error {
	if err := writeFile(filepath.Join(dir, summaryFile), r.Markdown); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, reportFile), r.HTML)
}

// writeFile makes a file of what write gives, all at once: an interruption, or a full
// disk, leaves the one that is there.
func writeFile(path string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	fresh := path + ".new"
	err := os.WriteFile(fresh, text.Bytes(), 0o644)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, removed(fresh)))
	}
	return nil
}

// removed takes away a file that may not be there.
func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
