// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
)

// Again is one run that is on record, to be done again.
type Again struct {
	Scenario bench.Scenario
	Arm      bench.Arm
	Seed     uint64
	Order    int
	Build    bench.Build
	Machine  bench.Machine
	Commit   string
	// Digests are the record's, by step.
	Digests map[int]string
}

// Outcome is what doing it again gave.
type Outcome struct {
	Same    int
	Differ  []int // steps whose digest is another
	Missing []int // steps on record that the new run has not
}

// NotTheSame is a run whose inputs are not those on record: repeating it would
// prove nothing.
type NotTheSame struct {
	Differences []string
	Commit      string
}

// Error names every difference and the way out.
func (e *NotTheSame) Error() string {
	return "run again: the inputs are not those on record, so digests would differ\n  " +
		strings.Join(e.Differences, "\n  ") + "\n" + remedy(e.Commit) + "; Go: GOTOOLCHAIN=GOVERSION make build; kernel, emulator and packages: those versions, from the mirror or a cache that has them"
}

// remedy is how to get the programs of a commit.
func remedy(commit string) string {
	if base, changed := strings.CutSuffix(commit, "+"); changed || commit == "unknown" {
		return fmt.Sprintf("programs: they were built from %s and changes that no commit has; only who kept them can run this again (--node, --temper)", base)
	}
	return fmt.Sprintf("programs: git worktree add ../%[1]s %[1]s && make -C ../%[1]s build, and run ../%[1]s/out/temper-lab from here", commit)
}

// Rerun does a run on record again, with the campaign's programs and machine,
// and compares digests. Inputs that differ give a *NotTheSame and no run.
func (c *Campaign) Rerun(ctx context.Context, was Again) (Outcome, error) {
	if !was.Machine.Virtual() {
		return Outcome{}, fmt.Errorf("run again: it was timed by the clock %q: real time never gives the same twice, nor does a guest that talks to others", was.Machine.Clock)
	}
	again := *c
	again.Scenario, again.Kernel, again.Topology, again.Place = was.Scenario, was.Machine.KernelName, was.Machine.Topology, OnGuest
	again.Arms = []bench.Arm{was.Arm}
	j := job{arm: was.Arm, seed: was.Seed, order: was.Order}
	builds, err := again.builds()
	if err != nil {
		return Outcome{}, err
	}
	if err := again.same(ctx, j, builds[was.Arm.Name], was); err != nil {
		return Outcome{}, err
	}
	if again.Tracer != nil {
		again.Clock = again.Tracer
	}
	var out Outcome
	a := &attempt{Campaign: &again, job: j, build: builds[was.Arm.Name], keep: func(records []bench.Record) error {
		for i := range records {
			if again.Tracer != nil {
				records[i].Machine = was.Machine // compared above, and the tracer is not it
			}
		}
		out, err = compare(was.Digests, records)
		return err
	}}
	return out, a.run(ctx)
}

// same compares everything that a run in virtual time depends on.
func (c *Campaign) same(ctx context.Context, j job, build bench.Build, was Again) error {
	var diff []string
	for _, f := range []struct{ name, was, is string }{
		{"program temper-lab-node", was.Build.NodeSHA256, build.NodeSHA256},
		{"program temper", was.Build.TemperSHA256, build.TemperSHA256},
		{"program temper-agent", was.Build.AgentSHA256, build.AgentSHA256},
		{"Go toolchain", was.Build.Go, build.Go},
	} {
		if f.was != f.is {
			diff = append(diff, fmt.Sprintf("%s was %.16s, is %.16s", f.name, f.was, f.is))
		}
	}
	is, err := c.machine(ctx, j)
	if err != nil {
		return err
	}
	diff = append(diff, bench.Differences(was.Machine, is)...)
	if !slices.Equal(was.Machine.EmulatorArgs, is.EmulatorArgs) {
		diff = append(diff, fmt.Sprintf("emulator's arguments were %q, are %q", was.Machine.EmulatorArgs, is.EmulatorArgs))
	}
	if len(diff) == 0 && was.Machine.InitrdSHA256 != is.InitrdSHA256 {
		diff = append(diff, "what the guest boots with is another, though its parts are the same: it was packed by another version of this program")
	}
	if len(diff) > 0 {
		return &NotTheSame{Differences: diff, Commit: was.Commit}
	}
	return nil
}

// compare matches the new records' digests with those on record.
func compare(want map[int]string, records []bench.Record) (Outcome, error) {
	var out Outcome
	got := map[int]string{}
	for i := range records {
		if err := records[i].Seal(); err != nil {
			return out, err
		}
		got[records[i].Window.Step.Index] = records[i].Digest
	}
	for step, digest := range want {
		switch is, ok := got[step]; {
		case !ok:
			out.Missing = append(out.Missing, step)
		case is != digest:
			out.Differ = append(out.Differ, step)
		default:
			out.Same++
		}
	}
	slices.Sort(out.Differ)
	slices.Sort(out.Missing)
	return out, nil
}
