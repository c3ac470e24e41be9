// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/run"
	"github.com/temper-sched/temper/internal/bench/trace"
	"github.com/temper-sched/temper/internal/guest"
)

// again is the rerun command's flags.
type again struct {
	programs programs
	only     string
	exec     string
	jobs     int
	trace    string
	waits    string
}

func newRerun() *cobra.Command {
	a := again{}
	cmd := &cobra.Command{
		Use:   "rerun DIR|FILE",
		Short: "Do runs on record again and compare digests",
		Long: `Rerun boots the guests of a record file again and compares the digest of every
window. Virtual time makes them equal to the last bit, on any host, however busy,
if the inputs are the same: programs, kernel, emulator, clock plugin, packages.
These are on record and are compared before anything is booted; what differs is
named, and how to get it.

With --trace FILE the emulator also notes who woke whom and what each CPU ran, into
FILE. The guest does not notice: the digests are still those on record. The longest
waits of a run are told by thread name, those of --waits NAME with all that happened
meanwhile.

` + exitCodes,
		Example: `  temper-lab rerun bench/records/2026-11-20-memcached-ladder --only temper/3
  temper-lab rerun out/demo-20261120-091500
  temper-lab rerun out/redis-ladder --only temper/3 --trace out/trace --waits redis-server`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, recordPath(args[0])) },
	}
	f := cmd.Flags()
	f.StringVar(&a.only, "only", "", "only runs of `arm/seed`, arm, or /seed, as in temper/3; or one by its whole name, as rerun prints it")
	f.StringVar(&a.exec, "exec", "", "the `program` of an exec: arm")
	f.IntVar(&a.jobs, "jobs", runtime.NumCPU(), "guests at once")
	f.StringVar(&a.trace, "trace", "", "also write a trace of the guest's scheduler into this `file`; of one run")
	f.StringVar(&a.waits, "waits", "", "with --trace, show the longest waits of the threads of this `name`")
	a.programs.flags(f)
	f.StringVar(&a.programs.execConfig, "exec-config", "", "configuration `file` of an exec: arm")
	return cmd
}

func (a *again) run(cmd *cobra.Command, path string) error {
	if a.waits != "" && a.trace == "" {
		return usageError{errors.New("--waits needs --trace FILE")}
	}
	runs, err := a.onRecord(cmd.Context(), path)
	if err != nil {
		return err
	}
	if a.trace != "" && len(runs) != 1 {
		return usageError{fmt.Errorf("a trace is of one run, and %d are chosen: give --only one of\n  %s", len(runs), strings.Join(ids(runs), "\n  "))}
	}
	brings := a.exec != "" || a.programs.execConfig != ""
	if brings && !slices.ContainsFunc(runs, func(r run.Again) bool { return r.Arm.Exec != nil }) {
		return usageError{errors.New("--exec and --exec-config are for an exec:PATH arm, and no run chosen has one")}
	}
	arms := make([]bench.Arm, 0, len(runs))
	var scenarios []bench.Scenario
	for _, r := range runs {
		r.Arm.Exec = nil // found by flag, below
		arms, scenarios = append(arms, r.Arm), append(scenarios, r.Scenario)
	}
	programs := a.programs
	programs.execConfig = "" // bring has it already
	if err := programs.find(arms, scenarios...); err != nil {
		return err
	}
	c := &run.Campaign{
		Node: programs.node, Temper: programs.temper, Agent: programs.agent, Commit: programs.commit, Clock: clock.Plugin,
		Log: guest.ProgressLog(cmd.ErrOrStderr()), Dir: "rerun",
	}
	if a.trace != "" {
		look, err := trace.Prepare(cmd.Context(), runs[0].Machine.KernelName, a.trace, c.Log)
		if err != nil {
			return err
		}
		defer look.Remove()
		c.Tracer = look.Clock
	}
	show := &verdicts{out: cmd.OutOrStdout(), total: len(runs)}
	slots := make(chan struct{}, a.jobs)
	var group sync.WaitGroup
	for _, r := range runs {
		slots <- struct{}{}
		if cmd.Context().Err() != nil {
			break
		}
		group.Go(func() {
			defer func() { <-slots }()
			out, err := c.Rerun(cmd.Context(), r)
			show.add(r, out, err)
		})
	}
	group.Wait()
	err = show.end()
	if ctx := cmd.Context(); ctx.Err() != nil {
		return errors.Join(err, fmt.Errorf("run again: %w", context.Cause(ctx)))
	}
	if a.trace != "" && len(show.refused) == 0 {
		return errors.Join(err, trace.ShowLongest(cmd.OutOrStdout(), a.trace, a.waits))
	}
	return err
}

// verdicts prints how each run compared.
type verdicts struct {
	mu      sync.Mutex
	out     io.Writer
	total   int
	done    int
	differ  int
	refused []error
}

func (v *verdicts) add(r run.Again, o run.Outcome, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done++
	id := fmt.Sprintf("[%d/%d] %s", v.done, v.total, runID(r.Scenario.Name, r.Machine.Topology, r.Arm.Name, r.Seed))
	switch {
	case err != nil:
		v.refused = append(v.refused, fmt.Errorf("%s: %w", id, err))
		fmt.Fprintf(v.out, "%s: not compared\n", id)
	case len(o.Differ)+len(o.Missing) > 0:
		v.differ++
		fmt.Fprintf(v.out, "%s: DIFFERS: steps %v have another digest, %v are missing, %d are the same\n", id, o.Differ, o.Missing, o.Same)
	default:
		fmt.Fprintf(v.out, "%s: the same: %d digests\n", id, o.Same)
	}
}

func (v *verdicts) end() error {
	err := errors.Join(v.refused...)
	if v.differ > 0 {
		err = errors.Join(fmt.Errorf("%w: %d of %d runs gave other digests", errUnsound, v.differ, v.total), err)
	}
	return err
}

// onRecord lists the runs in a record file that were chosen.
func (a *again) onRecord(ctx context.Context, path string) ([]run.Again, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	defer f.Close()
	var runs []run.Again
	err = bench.EachRecord(f, func(r *bench.Record) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !chosen(a.only, r) {
			return nil
		}
		i := slices.IndexFunc(runs, func(x run.Again) bool {
			return x.Scenario.Name == r.Scenario.Name && x.Machine.Topology == r.Machine.Topology && x.Arm.Name == r.Arm.Name && x.Seed == r.Seed
		})
		if i < 0 {
			i = len(runs)
			runs = append(runs, run.Again{
				Scenario: r.Scenario, Arm: r.Arm, Seed: r.Seed, Order: r.Order, Build: r.Build, Machine: r.Machine, Commit: r.Commit, Digests: map[int]string{},
			})
			if err := a.bring(&runs[i].Arm); err != nil {
				return err
			}
		}
		runs[i].Digests[r.Window.Step.Index] = r.Digest
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(runs) == 0 && a.only == "" {
		return nil, fmt.Errorf("%s: no record in it", path)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s: no run of %q on record", path, a.only)
	}
	return runs, nil
}

// bring finds the program of an exec arm and makes sure that it is the one on
// record.
func (a *again) bring(arm *bench.Arm) error {
	if arm.Exec == nil {
		return nil
	}
	if a.exec == "" {
		return fmt.Errorf("arm %s: give its program with --exec", arm.Name)
	}
	is := *arm.Exec
	is.Path, is.Config = a.exec, a.programs.execConfig
	if err := run.Describe(&is); err != nil {
		return err
	}
	if is.SHA256 != arm.Exec.SHA256 || is.ConfigSHA256 != arm.Exec.ConfigSHA256 {
		return fmt.Errorf("arm %s: %s or its configuration is not the one on record", arm.Name, a.exec)
	}
	arm.Exec = &is
	return nil
}

// chosen says whether --only names the run.
func chosen(only string, r *bench.Record) bool {
	if only == "" || only == runID(r.Scenario.Name, r.Machine.Topology, r.Arm.Name, r.Seed) {
		return true
	}
	name, number, ok := strings.Cut(only, "/")
	if name != "" && name != r.Arm.Name {
		return false
	}
	return !ok || number == strconv.FormatUint(r.Seed, 10)
}

// runID names a run within its file.
func runID(scenario, topology, arm string, seed uint64) string {
	return fmt.Sprintf("%s/%s/%s/seed=%d", scenario, topology, arm, seed)
}

// ids names runs, the first of them.
func ids(runs []run.Again) []string {
	const most = 10
	var out []string
	for i, r := range runs {
		if i == most {
			return append(out, fmt.Sprintf("and %d more", len(runs)-most))
		}
		out = append(out, runID(r.Scenario.Name, r.Machine.Topology, r.Arm.Name, r.Seed))
	}
	return out
}
