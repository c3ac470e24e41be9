// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/report"
	"github.com/temper-sched/temper/internal/bench/run"
)

// campaignFile is a list of lists: what to run, by name.
type campaignFile map[string][]entry

// entry is one scenario's part of a campaign. What it leaves out is the
// scenario's own.
type entry struct {
	// Name is that of the record directory; the scenario's if empty.
	Name       string   `yaml:"name"`
	Topologies []string `yaml:"topologies"`
	choice     `yaml:",inline"`
}

// listed is the campaign command's flags.
type listed struct {
	programs  programs
	list, out string
	only      []string
	jobs      int
	dry       bool
}

func newCampaign() *cobra.Command {
	l := listed{}
	cmd := &cobra.Command{
		Use:   "campaign FILE",
		Short: "Run a list of scenarios, unattended",
		Long: `Campaign runs every entry of a list in FILE, one after the other, as temper-lab run
would. Records of an entry go to OUT/NAME, and when all have run, the report of each
goes beside them. An interrupted campaign goes on where it ended with the same
command, and runs that failed are tried again. With --only it takes a part of the
list, which the whole then need not do again. With --dry-run it only looks at the
list, the programs and what is on record, and says what is left to do. What the
records say of the targets: temper-lab targets --records OUT.

` + exitCodes,
		Example: `  temper-lab campaign bench/campaign.yaml --dry-run
  temper-lab campaign bench/campaign.yaml --list quick --out out/quick
  temper-lab campaign bench/campaign.yaml --only burst,wakeup`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&l.list, "list", "full", "the `list` in FILE to run")
	f.StringSliceVar(&l.only, "only", nil, "entries of the list to run, by name (default: all)")
	f.StringVar(&l.out, "out", filepath.Join("out", "bench"), "`directory` of the record directories")
	f.IntVar(&l.jobs, "jobs", runtime.NumCPU(), "guests at once; changes no figure, time is virtual")
	f.BoolVar(&l.dry, "dry-run", false, "only list what would be run")
	l.programs.flags(f)
	return cmd
}

func (l *listed) run(cmd *cobra.Command, file string) error {
	campaigns, err := l.campaigns(file)
	if err != nil {
		return err
	}
	var arms []bench.Arm
	var scenarios []bench.Scenario
	for _, c := range campaigns {
		arms, scenarios = append(arms, c.Arms...), append(scenarios, c.Scenario)
	}
	if err := l.programs.find(arms, scenarios...); err != nil {
		return err
	}
	todo, err := look(cmd.ErrOrStderr(), &l.programs, l.jobs, campaigns)
	if err != nil {
		return err
	}
	if l.dry {
		return outline(cmd.OutOrStdout(), campaigns, todo)
	}
	err = carryOut(cmd.Context(), cmd.OutOrStdout(), campaigns, todo)
	if cmd.Context().Err() != nil {
		return err // it is not at its end
	}
	return errors.Join(err, writeReports(cmd.Context(), campaigns))
}

// writeReports writes the pages of all that was measured: a run that failed
// before its first window leaves nothing to write of.
func writeReports(ctx context.Context, campaigns []*run.Campaign) error {
	var errs []error
	done := map[string]bool{} // an entry of several topologies has one directory
	for _, c := range campaigns {
		if ctx.Err() != nil {
			return errors.Join(append(errs, fmt.Errorf("write reports: %w", context.Cause(ctx)))...)
		}
		if done[c.Dir] || !exists(filepath.Join(c.Dir, bench.RecordFile)) {
			continue
		}
		done[c.Dir] = true
		r, err := report.Read(c.Dir)
		if err == nil {
			err = writePages(c.Dir, r)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// campaigns reads the list, one campaign for each entry and topology.
func (l *listed) campaigns(file string) ([]*run.Campaign, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read campaign: %w", err)
	}
	lists := campaignFile{}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&lists); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read campaign %s: %w", file, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read campaign %s: more than one document", file)
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("read campaign %s: no list in it", file)
	}
	entries, ok := lists[l.list]
	if !ok {
		var known []string
		for name := range lists {
			known = append(known, name)
		}
		slices.Sort(known)
		return nil, usageError{fmt.Errorf("read campaign %s: no list %q: it has %s", file, l.list, strings.Join(known, ", "))}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("read campaign %s: no entry in list %q", file, l.list)
	}
	if err := distinct(entries); err != nil {
		return nil, fmt.Errorf("read campaign %s: %w", file, err)
	}
	if err := l.knows(entries); err != nil {
		return nil, usageError{fmt.Errorf("read campaign %s: %w", file, err)}
	}
	var out []*run.Campaign
	for i, e := range entries {
		if len(l.only) > 0 && !slices.Contains(l.only, e.name()) {
			continue
		}
		topologies, err := e.topologies()
		if err != nil {
			return nil, fmt.Errorf("read campaign %s: %s[%d]: %w", file, l.list, i, err)
		}
		for _, topology := range topologies {
			e.Topology = topology
			c, err := e.campaign(run.OnGuest)
			if err != nil {
				return nil, fmt.Errorf("read campaign %s: %s[%d]: %w", file, l.list, i, err)
			}
			if slices.ContainsFunc(c.Arms, func(a bench.Arm) bool { return a.Exec != nil }) {
				return nil, fmt.Errorf("read campaign %s: %s[%d]: exec: arms are for temper-lab run", file, l.list, i)
			}
			if len(topologies) > 1 {
				c.Topologies = topologies
			}
			c.Dir = filepath.Join(l.out, e.name())
			out = append(out, c)
		}
	}
	return out, nil
}

// name is what the entry's record directory ends with.
func (e entry) name() string { return orDefault(e.Name, e.Scenario) }

// topologies are those that the entry is run on, "" for the scenario's.
func (e entry) topologies() ([]string, error) {
	switch {
	case nothing(e.Topologies):
		return nil, errors.New("topologies: empty")
	case len(e.Topologies) == 0:
		return []string{e.Topology}, nil
	case e.Topology != "":
		return nil, errors.New("give either topology or topologies")
	}
	for i, t := range e.Topologies {
		if slices.Contains(e.Topologies[:i], t) {
			return nil, fmt.Errorf("topologies: %s is given twice", t)
		}
	}
	return e.Topologies, nil
}

// distinct refuses names that are no directory below OUT, or that two entries have: one
// directory never holds two sorts of windows.
func distinct(entries []entry) error {
	seen := map[string]bool{}
	for _, e := range entries {
		name := e.name()
		if name != filepath.Base(name) || !filepath.IsLocal(name) || name == "." {
			return fmt.Errorf("name %q: want one element of a path", name)
		}
		if seen[name] {
			return fmt.Errorf("name %q: two entries have it, and one directory holds one of them", name)
		}
		seen[name] = true
	}
	return nil
}

// knows returns an error if an entry is asked for that the list does not have.
func (l *listed) knows(entries []entry) error {
	var known []string
	for _, e := range entries {
		known = append(known, e.name())
	}
	for _, name := range l.only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no entry %q in list %q: it has %s", name, l.list, strings.Join(known, ", "))
		}
	}
	return nil
}

// outline lists campaigns, and how much of them there is to do.
func outline(out io.Writer, campaigns []*run.Campaign, todo run.Todo) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DIRECTORY\tSCENARIO\tTOPOLOGY\tARMS\tSEEDS\tSTEPS\tWINDOWS\tGUEST TIME")
	windows, seconds := 0, 0.0
	for _, c := range campaigns {
		var arms []string
		for _, a := range c.Arms {
			arms = append(arms, a.Name)
		}
		steps := len(c.Scenario.Steps())
		n := steps * len(c.Arms) * c.Seeds
		virtual := float64(n) * c.Scenario.Load.Total().Seconds()
		windows, seconds = windows+n, seconds+virtual
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%.0f s\n", c.Dir, c.Scenario.Name, c.Topology, strings.Join(arms, ","), c.Seeds, steps, n, virtual)
	}
	fmt.Fprintf(w, "\t\t\t\t\t\t%d\t%.0f s\n", windows, seconds)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, toDo+"\n", todo.Windows, todo.Runs, todo.HaveWin)
	return err
}
