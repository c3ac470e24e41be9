// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/guest"
)

func newLs() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [DIR]",
		Short: "List the scenarios, and the records below DIR",
		Long:  "Ls lists the scenarios that this program knows, then every record file below DIR\n(default bench/records, where there is one) with what it holds.",
		Example: `  temper-lab ls
  temper-lab ls out`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := listScenarios(cmd.OutOrStdout()); err != nil {
				return err
			}
			dir := filepath.Join("bench", "records")
			if len(args) > 0 {
				dir = args[0]
			} else if _, err := os.Stat(dir); err != nil {
				return nil //nolint:nilerr // outside of a checkout there are none
			}
			return listRecords(cmd.OutOrStdout(), dir)
		},
	}
}

func listScenarios(out io.Writer) error {
	all, err := scenarios.All()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCENARIO\tMEASURES\tTOPOLOGY\tSTEPS\tARMS\tSEEDS\tWHAT")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", s.Name, s.Measures, s.Topology, len(s.Steps()), len(s.Arms), s.Seeds, s.Title)
	}
	return w.Flush()
}

// heldSet is what a record file holds of one scenario and topology.
type heldSet struct {
	windows, void int
	arms          map[string]bool
	seeds         map[uint64]bool
	clock, commit string
}

func listRecords(out io.Writer, dir string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nRECORDS\tSCENARIO\tTOPOLOGY\tWINDOWS\tVOID\tARMS\tSEEDS\tCLOCK\tCOMMIT")
	var errs []error
	found := false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != bench.RecordFile {
			return err
		}
		found = true
		if err := listFile(w, path); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("no %s below %s", bench.RecordFile, dir)
	}
	return errors.Join(err, w.Flush(), errors.Join(errs...))
}

func listFile(out io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sets := map[string]*heldSet{}
	if err := bench.EachRecord(f, func(r *bench.Record) error {
		key := r.Scenario.Name + "\t" + r.Machine.Topology
		s := sets[key]
		if s == nil {
			s = &heldSet{arms: map[string]bool{}, seeds: map[uint64]bool{}, clock: r.Machine.Clock, commit: r.Commit}
			sets[key] = s
		}
		s.windows++
		if !r.Verdict.Valid {
			s.void++
		}
		s.arms[r.Arm.Name], s.seeds[r.Seed] = true, true
		return nil
	}); err != nil {
		return err
	}
	if len(sets) == 0 {
		return errors.New("no record in it")
	}
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		s := sets[key]
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%s\t%d\t%s\t%s\n", filepath.Dir(path), key, s.windows, s.void,
			strings.Join(slices.Sorted(maps.Keys(s.arms)), ","), len(s.seeds), s.clock, s.commit)
	}
	return nil
}

func newKernels() *cobra.Command {
	return &cobra.Command{
		Use:     "kernels",
		Short:   "List the kernels that guests can run",
		Long:    "Kernels lists the names that --kernel takes. Each is fetched from Debian when it is\nfirst used, and kept below the user's cache directory.",
		Example: "  temper-lab kernels",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range guest.Kernels() {
				mark := ""
				if name == guest.DefaultKernel {
					mark = "  (default)"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s%s\n", name, mark)
			}
			return nil
		},
	}
}
