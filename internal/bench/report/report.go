// SPDX-License-Identifier: Apache-2.0

// Package report makes text and pages of records, and of nothing else: whoever
// has the records can make the same report.
package report

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// enoughForP999 is the number of requests below which a p99.9 rests on fewer
// than a hundred of them.
const enoughForP999 = 100_000

// Report is a campaign's figures, by arm and density.
type Report struct {
	Scenario bench.Scenario
	Arms     []Arm
	Seeds    []uint64
	Void     int // windows that no figure is made of
	Records  []bench.Record
}

// Arm is one arm's ladder.
type Arm struct {
	bench.Arm
	Rows  []Row // by density
	Style int   // its colour and marker, the same in every report
}

// Row is one step: the merged valid windows of one arm at one density.
type Row struct {
	Density    int
	Windows    int // valid ones
	Latency    *bench.Hist
	Lag        *bench.Hist
	RunDelay   float64 // the largest share of a window that the client waited for its CPU
	Offered    float64
	Achieved   float64
	Background float64 // CPUs
	Critical   float64
	PodCPUs    int
	// Harvest is background's share of what critical and system work left on
	// the pods' CPUs, in [0,1]; it says something only while spinners could
	// have used all of it.
	Harvest float64
	// Void are the reasons of the windows that were left out.
	Void []string
}

// Valid says whether the row has figures.
func (r Row) Valid() bool { return r.Windows > 0 }

// P returns a percentile of the latency, q in [0,1].
func (r Row) P(q float64) time.Duration { return r.Latency.Quantile(q) }

// FewForP999 says whether the row's p99.9 rests on too few requests.
func (r Row) FewForP999() bool { return r.Latency.Count() < enoughForP999 }

// Read makes a report of the records in dir.
func Read(dir string) (*Report, error) {
	f, err := os.Open(filepath.Join(dir, bench.RecordFile))
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	defer f.Close()
	records, err := bench.ReadRecords(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return New(records)
}

// New makes a report of records of one scenario. Verdicts are judged again:
// a file is not believed because it says so.
func New(records []bench.Record) (*Report, error) {
	if len(records) == 0 {
		return nil, errors.New("make report: no records")
	}
	r := &Report{Scenario: records[0].Scenario, Records: records}
	for i := range records {
		rec := &records[i]
		if rec.Scenario.Name != r.Scenario.Name {
			return nil, fmt.Errorf("make report: scenarios %s and %s in one file", r.Scenario.Name, rec.Scenario.Name)
		}
		if clock := records[0].Machine.Clock; rec.Machine.Clock != clock {
			return nil, fmt.Errorf("make report: windows timed by %s and by %s are not comparable", clock, rec.Machine.Clock)
		}
		if !slices.Contains(r.Seeds, rec.Seed) {
			r.Seeds = append(r.Seeds, rec.Seed)
		}
		r.row(rec).add(rec, &r.Void)
	}
	order := map[string]int{}
	for i, a := range bench.Arms() {
		order[a.Name] = i
	}
	for i := range r.Arms {
		a := &r.Arms[i]
		a.Style = order[a.Name]
		slices.SortFunc(a.Rows, func(x, y Row) int { return cmp.Compare(x.Density, y.Density) })
	}
	slices.SortStableFunc(r.Arms, func(a, b Arm) int { return a.Style - b.Style })
	return r, nil
}

// row finds or makes the row a record belongs to.
func (r *Report) row(rec *bench.Record) *Row {
	i := slices.IndexFunc(r.Arms, func(a Arm) bool { return a.Name == rec.Arm.Name })
	if i < 0 {
		r.Arms = append(r.Arms, Arm{Arm: rec.Arm})
		i = len(r.Arms) - 1
	}
	arm := &r.Arms[i]
	j := slices.IndexFunc(arm.Rows, func(row Row) bool { return row.Density == rec.Window.Step.Density })
	if j < 0 {
		arm.Rows = append(arm.Rows, Row{Density: rec.Window.Step.Density, Latency: bench.NewHist(), Lag: bench.NewHist()})
		j = len(arm.Rows) - 1
	}
	return &arm.Rows[j]
}

// add merges a window into the row. Rates are means over windows, all windows
// of a scenario being equally long; latencies are merged, never averaged.
func (r *Row) add(rec *bench.Record, void *int) {
	if v := bench.Judge(rec); !v.Valid {
		*void++
		r.Void = append(r.Void, v.Reasons...)
		return
	}
	w, l := &rec.Window, rec.Window.Ledger
	r.Latency.Merge(w.Primary.Latency)
	r.Lag.Merge(w.Primary.Lag)
	mean := func(into *float64, v float64) { *into += (v - *into) / float64(r.Windows+1) }
	mean(&r.Offered, w.Primary.Offered)
	mean(&r.Achieved, w.Primary.Achieved)
	mean(&r.Background, l.BackgroundCPUs())
	mean(&r.Critical, l.CriticalCPUs())
	mean(&r.Harvest, l.Harvest())
	r.RunDelay = max(r.RunDelay, float64(w.Primary.RunDelay)/float64(rec.Scenario.Load.Window))
	r.PodCPUs = l.PodCPUs
	r.Windows++
}

// ends returns the arm's first and last step, if both have figures.
func (a Arm) ends() (first, last Row, ok bool) {
	if len(a.Rows) < 2 {
		return first, last, false
	}
	first, last = a.Rows[0], a.Rows[len(a.Rows)-1]
	return first, last, first.Valid() && last.Valid()
}

// worst returns the step with the highest p99.
func (a Arm) worst() (worst Row, ok bool) {
	for _, row := range a.Rows {
		if row.Valid() && (!ok || row.P(.99) > worst.P(.99)) {
			worst, ok = row, true
		}
	}
	return worst, ok
}

// Headline says in a few sentences what the records show, whatever that is.
func (r *Report) Headline() []string {
	var without, with, growth, background, out []string
	top := 0
	for _, a := range r.Arms {
		first, last, ok := a.ends()
		if !ok && len(a.Rows) < 2 {
			out = append(out, a.Name+" has a single step: nothing to compare it with.")
			continue
		}
		if !ok {
			out = append(out, fmt.Sprintf("No figure for %s: its first or last step has no valid window.", a.Name))
			continue
		}
		worst, _ := a.worst()
		without = append(without, micros(first.P(.99)))
		with = append(with, fmt.Sprintf("%s under %s", micros(worst.P(.99)), a.Name))
		growth = append(growth, fmt.Sprintf("%s under %s (at %d)", fold(times(worst.P(.99), first.P(.99))), a.Name, worst.Density))
		background = append(background, fmt.Sprintf("%.2f under %s", last.Background, a.Name))
		top = last.Density
	}
	if len(growth) == 0 {
		return out
	}
	// The first figure carries the unit for all.
	background[0] = strings.Replace(background[0], " ", " CPUs ", 1)
	return slices.Concat([]string{
		fmt.Sprintf("With up to %d spinners beside it, memcached's worst p99 was %s; without any it was %s.", top, list(with), list(without)),
		fmt.Sprintf("Growth over its own p99 without background: %s. At %d spinners background got %s.", list(growth), top, list(background)),
	}, r.versus(top), out)
}

// versus compares temper with each other arm at both ends of the ladder, the
// losses in the same words as the wins.
func (r *Report) versus(top int) []string {
	i := slices.IndexFunc(r.Arms, func(a Arm) bool { return a.Ops == "temper" })
	if i < 0 {
		return nil
	}
	idle, full, ok := r.Arms[i].ends()
	if !ok {
		return nil
	}
	var out []string
	for _, a := range r.Arms {
		first, last, ok := a.ends()
		if a.Name == r.Arms[i].Name || !ok {
			continue
		}
		out = append(out, fmt.Sprintf("Against %s, temper's p99 is %s without background and %s at %d spinners, where background gets %s.", a.Name,
			change(times(idle.P(.99), first.P(.99)), "higher", "lower", "equal"),
			change(times(full.P(.99), last.P(.99)), "higher", "lower", "equal"), top,
			change(full.Background/last.Background, "more", "less", "as much")))
	}
	return out
}

// change puts a ratio in words.
func change(ratio float64, above, below, same string) string {
	switch percent := 100 * (ratio - 1); {
	case percent >= 0.5:
		return fmt.Sprintf("%.0f %% %s", percent, above)
	case percent <= -0.5:
		return fmt.Sprintf("%.0f %% %s", -percent, below)
	}
	return same
}

// list joins parts as a sentence does.
func list(parts []string) string {
	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// fold shows a growth to three digits.
func fold(ratio float64) string {
	if ratio < 10 {
		return fmt.Sprintf("%.2f×", ratio)
	}
	return fmt.Sprintf("%.0f×", ratio)
}

func times(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// micros shows a latency to three digits with its unit, which no line break parts
// from it.
func micros(d time.Duration) string {
	us := float64(d) / 1e3
	switch {
	case us < 10:
		return fmt.Sprintf("%.1f\u00a0µs", us)
	case us < 1e3:
		return fmt.Sprintf("%.0f\u00a0µs", us)
	case us < 1e4:
		return fmt.Sprintf("%.2f\u00a0ms", us/1e3)
	case us < 1e5:
		return fmt.Sprintf("%.1f\u00a0ms", us/1e3)
	}
	return fmt.Sprintf("%.0f\u00a0ms", us/1e3)
}
