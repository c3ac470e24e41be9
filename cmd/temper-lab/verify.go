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

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/report"
	"github.com/temper-sched/temper/internal/bench/verify"
)

// errUnsound is a record file that is not what the laboratory wrote, or a run
// that did not give the same again.
var errUnsound = bench.ErrUnsound

func newVerify() *cobra.Command {
	quiet := false
	cmd := &cobra.Command{
		Use:   "verify DIR|FILE...",
		Short: "Check records offline: digests, percentiles, verdicts, missing windows",
		Long: `Verify reads record files and computes again what they state: every checksum and
digest, every percentile from its histogram, every verdict from the window's own
samples, the windows that the campaign's plan asks for, and the statistics in
REPORT.md where one lies beside the records. It finds what was
edited, what was measured under another scheduler than its arm's, what is of
another machine, build or seed, and what is missing. Void windows with their true
reasons are counted and are no fault. A line all of whose figures were made up to
fit each other is found by rerun, which measures again. A plan is of one scenario on
all its topologies: where all windows of a scenario were taken out, nothing says that
they were there.

It uses nothing but the files: no guest, no network, no checkout.

` + exitCodes,
		Example: `  temper-lab verify bench/records/*
  temper-lab verify out/memcached-ladder/records.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name at least one directory or file with records")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return verifyAll(cmd.OutOrStdout(), args, quiet) },
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print findings only")
	return cmd
}

func verifyAll(out io.Writer, paths []string, quiet bool) error {
	windows, void, findings := 0, 0, 0
	var unread []error // one that cannot be read hides no other
	for _, path := range paths {
		path = recordPath(path)
		report, err := verifyFile(path)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		windows, void, findings = windows+report.Windows, void+report.Void, findings+len(report.Findings)
		for _, f := range report.Findings {
			fmt.Fprintf(out, "%s: %s\n", path, f)
		}
		if !quiet && report.Sound() {
			fmt.Fprintf(out, "%s: sound: %d windows, %d of them void\n", path, report.Windows, report.Void)
		}
	}
	err := errors.Join(unread...)
	if findings > 0 {
		err = errors.Join(fmt.Errorf("%w: %d findings in %d windows", errUnsound, findings, windows), err)
	}
	if err != nil {
		return err
	}
	if !quiet && len(paths) > 1 {
		fmt.Fprintf(out, "all sound: %d windows, %d of them void\n", windows, void)
	}
	return nil
}

func verifyFile(path string) (verify.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return verify.Report{}, fmt.Errorf("open records: %w", err)
	}
	defer f.Close()
	found, err := verify.Check(f)
	if err != nil {
		return found, fmt.Errorf("verify %s: %w", path, err)
	}
	if filepath.Base(path) == bench.RecordFile && found.Sound() {
		stale, err := staleSummary(filepath.Dir(path))
		if err != nil {
			return found, err
		}
		if stale {
			found.Findings = append(found.Findings, verify.Finding{Text: summaryFile + " beside it is not what the records give; temper-lab report makes it anew"})
		}
	}
	return found, nil
}

// staleSummary says whether dir has a summary with other figures than its
// records give.
func staleSummary(dir string) (bool, error) {
	stated, err := os.ReadFile(filepath.Join(dir, summaryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read summary: %w", err)
	}
	r, err := report.Read(dir)
	if err != nil {
		return false, err
	}
	var made bytes.Buffer
	if err := r.Markdown(&made); err != nil {
		return false, fmt.Errorf("make summary of %s: %w", dir, err)
	}
	return !bytes.Equal(stated, made.Bytes()), nil
}

// recordPath is the record file of a directory, or the file itself.
func recordPath(path string) string {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return filepath.Join(path, bench.RecordFile)
	}
	return path
}
