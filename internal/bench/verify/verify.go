// SPDX-License-Identifier: Apache-2.0

// Package verify finds out offline whether a record file is what the laboratory
// wrote, and whether all of it is there. It believes nothing that it can
// compute: percentiles, digests, checksums and verdicts are made again from the
// histograms and samples, and the windows are counted against the plan.
//
// It is pure: a reader in, findings out.
package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// Finding is one thing that is wrong.
type Finding struct {
	Line int    // 0 where it is about the whole file
	ID   string // of the record, if it could be read
	Text string
}

// String shows where and what.
func (f Finding) String() string {
	var where []string
	if f.Line > 0 {
		where = append(where, fmt.Sprintf("line %d", f.Line))
	}
	if f.ID != "" {
		where = append(where, f.ID)
	}
	return strings.Join(append(where, f.Text), ": ")
}

// Report is what a file holds.
type Report struct {
	Windows  int
	Void     int // with their reasons: sound, and in no figure
	Findings []Finding
}

// Sound says that nothing is wrong. Void windows are no fault of a file.
func (r Report) Sound() bool { return len(r.Findings) == 0 }

// Check reads a record file.
func Check(file io.Reader) (Report, error) {
	c := checker{cells: map[cell]int{}, sets: map[set]*gathered{}, latencies: map[string]int{}, requests: map[cell]request{}}
	err := bench.ScanRecords(file, func(l bench.Line) error {
		c.line(l)
		return nil
	})
	if err != nil {
		return c.report, err
	}
	if c.report.Windows == 0 {
		c.find(bench.Line{}, "no record can be read")
	}
	c.complete()
	return c.report, nil
}

// set is one table's worth of records, cell one window's place in it.
type (
	set  struct{ scenario, topology string }
	cell struct {
		set
		arm  string
		seed uint64
		step int
	}
)

// gathered is what a set's records have in common, and which are there.
type gathered struct {
	first    *bench.Record
	arms     map[string]bench.Record // without windows
	plans    map[string]bench.Plan
	scenario string
	temper   string // the hash of the scheduler's program, of the arms that have one
	steps    int
}

type checker struct {
	report    Report
	campaign  string
	clock     string
	cells     map[cell]int // line of each window
	sets      map[set]*gathered
	latencies map[string]int   // line of each histogram
	requests  map[cell]request // of the step, whatever the arm
}

// request is how many a step has, and where that was seen first.
type request struct{ n, line int }

func (c *checker) find(l bench.Line, format string, args ...any) {
	f := Finding{Line: l.Number, Text: fmt.Sprintf(format, args...)}
	if l.Record != nil {
		f.ID = l.Record.ID()
	}
	c.report.Findings = append(c.report.Findings, f)
}

// line checks one record by itself and against those before it.
func (c *checker) line(l bench.Line) {
	if l.Err != nil {
		c.find(l, "tampered or torn: %v", l.Err)
		return
	}
	c.report.Windows++
	r := l.Record
	if err := l.Intact(); err != nil {
		c.find(l, "tampered: %v", err)
	}
	verdict := bench.Judge(r)
	if !slices.Equal(verdict.Reasons, r.Verdict.Reasons) || verdict.Valid != r.Verdict.Valid {
		c.find(l, "polluted: its verdict is %s, but what it holds gives %s", shown(r.Verdict), shown(verdict))
	}
	if !verdict.Valid {
		c.report.Void++
	}
	for _, text := range consistent(r) {
		c.find(l, "tampered: %s", text)
	}
	c.among(l)
}

func shown(v bench.Verdict) string {
	if v.Valid {
		return "valid"
	}
	return "void (" + strings.Join(v.Reasons, "; ") + ")"
}

// text is v for comparison.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error() // of plain structs, which cannot fail
	}
	return string(b)
}

// histRatio is how far a histogram's value may be from the one it counts:
// three digits.
const histRatio = 0.002

func near(a, b time.Duration) bool {
	return math.Abs(float64(a-b)) <= histRatio*float64(max(a, b))+1
}

// among compares a record with the others of its set.
func (c *checker) among(l bench.Line) {
	r := l.Record
	if c.report.Windows == 1 {
		c.campaign, c.clock = r.Campaign, r.Machine.Clock
	}
	if r.Campaign != c.campaign {
		c.find(l, "polluted: it is of campaign %s, the file of %s", r.Campaign, c.campaign)
	}
	if r.Machine.Clock != c.clock {
		c.find(l, "polluted: it was timed by %s, the file by %s", r.Machine.Clock, c.clock)
	}
	at := set{r.Scenario.Name, r.Machine.Topology}
	g := c.sets[at]
	if g == nil {
		g = &gathered{first: r, arms: map[string]bench.Record{}, plans: map[string]bench.Plan{}, scenario: text(r.Scenario), steps: len(r.Scenario.Steps())}
		c.sets[at] = g
	}
	if is := text(r.Scenario); is != g.scenario {
		c.find(l, "polluted: its scenario is described otherwise than in the windows before it")
	}
	for _, d := range Apart(g.first.Machine, r.Machine) {
		c.find(l, "polluted: it ran on another machine than the windows before it: %s", d)
	}
	for _, d := range sameInstrument(g.first, r) {
		c.find(l, "polluted: it was measured by another instrument than the windows before it: %s", d)
	}
	if temper := r.Build.TemperSHA256; temper != "" && g.temper == "" {
		g.temper = temper
	} else if temper != "" && temper != g.temper {
		c.find(l, "polluted: it ran another build of temper than the arms before it")
	}
	c.armOf(l, g)
	c.twice(l)
	c.sameRequests(l, at)
	if r.Plan.Seeds > bench.MaxSeeds {
		c.find(l, "tampered: a plan of %d seeds, %d are the most", r.Plan.Seeds, bench.MaxSeeds)
	} else {
		g.plans[text(r.Plan)] = r.Plan
	}
	place := cell{at, r.Arm.Name, r.Seed, r.Window.Step.Index}
	if before, ok := c.cells[place]; ok {
		c.find(l, "polluted: the same window is on line %d", before)
		return
	}
	c.cells[place] = l.Number
}

// fewLatencies may be equal by chance.
const fewLatencies = 100

// twice demands that no two windows have the same latencies.
func (c *checker) twice(l bench.Line) {
	h := l.Record.Window.Primary.Latency
	if h == nil || h.Count() < fewLatencies {
		return
	}
	is := text(h)
	if before, ok := c.latencies[is]; ok {
		c.find(l, "tampered: its latencies are those of line %d", before)
		return
	}
	c.latencies[is] = l.Number
}

// sameRequests demands what makes pairs of arms: an open loop draws the same arrivals for a
// seed and a step under all of them.
func (c *checker) sameRequests(l bench.Line, at set) {
	r := l.Record
	if kind := r.Scenario.KindOf(); !kind.Server || kind.Tool || !r.Machine.Virtual() {
		return
	}
	place, n := cell{set: at, seed: r.Seed, step: r.Window.Step.Index}, r.Window.Primary.Requests
	if was, ok := c.requests[place]; ok && was.n != n {
		c.find(l, "tampered: %d requests, but %d at the same step with the same seed on line %d", n, was.n, was.line)
		return
	}
	c.requests[place] = request{n, l.Number}
}

// armOf demands that all windows of an arm ran the same programs.
func (c *checker) armOf(l bench.Line, g *gathered) {
	r := l.Record
	one, ok := g.arms[r.Arm.Name]
	if !ok {
		g.arms[r.Arm.Name] = bench.Record{Arm: r.Arm, Build: r.Build}
		return
	}
	if text(one.Arm) != text(r.Arm) {
		c.find(l, "polluted: arm %s is described otherwise than before", r.Arm.Name)
	}
	if one.Build != r.Build {
		c.find(l, "polluted: arm %s ran other programs than before", r.Arm.Name)
	}
}

// complete counts the windows against the plans that they name.
func (c *checker) complete() {
	without := map[set]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(c.sets), func(a, b set) int { return strings.Compare(a.scenario+a.topology, b.scenario+b.topology) }) {
		g := c.sets[at]
		seen := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(g.plans)) {
			for _, topology := range g.plans[name].Topologies {
				if other := (set{at.scenario, topology}); c.sets[other] == nil && !without[other] {
					without[other] = true
					c.report.Findings = append(c.report.Findings, Finding{ID: at.scenario + "/" + topology, Text: "missing: all windows on it; they were never measured, or were taken out"})
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(g.plans)) {
			plan := g.plans[name]
			for i := range plan.Seeds {
				for _, arm := range plan.Arms {
					seed := plan.SeedFirst + uint64(i)
					if run := fmt.Sprintf("%s/%s/%s/seed=%d", at.scenario, at.topology, arm, seed); !seen[run] {
						seen[run] = true
						c.run(run, at, arm, seed, g.steps)
					}
				}
			}
		}
	}
}

// run demands all steps of one run.
func (c *checker) run(id string, at set, arm string, seed uint64, steps int) {
	var missing []string
	for step := range steps {
		if _, ok := c.cells[cell{at, arm, seed, step}]; !ok {
			missing = append(missing, strconv.Itoa(step))
		}
	}
	switch {
	case len(missing) == steps:
		c.report.Findings = append(c.report.Findings, Finding{ID: id, Text: "missing: the whole run; it was never finished, or was taken out"})
	case len(missing) > 0:
		c.report.Findings = append(c.report.Findings, Finding{ID: id, Text: "missing: steps " + strings.Join(missing, ", ") + "; they were never finished, or were taken out"})
	}
}
