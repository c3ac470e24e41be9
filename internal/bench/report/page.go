// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed" // for the page's template
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"swatch": swatch,
	"micros": micros,
	"join":   func(s []string) string { return strings.Join(s, " ") },
}).Parse(pageHTML))

// view is what the page's template sees.
type view struct {
	*Report
	Headline   []string
	Caveats    []string
	Tail       template.HTML
	Background template.HTML
	Facts      []fact
}

// fact is one line of provenance.
type fact struct{ Name, Value string }

// HTML writes the report as one page that needs nothing else: no network, no
// script, no font.
func (r *Report) HTML(w io.Writer) error {
	v := view{Report: r, Headline: r.Headline(), Caveats: r.Caveats(), Tail: r.tailChart().svg(), Background: r.backgroundChart().svg(), Facts: r.facts()}
	if err := pageTemplate.Execute(w, v); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

const xLabel = "background pods, one spinner each"

func (r *Report) tailChart() *chart {
	return &chart{
		title: "p99 latency against the number of spinners", xLabel: xLabel, yLabel: "p99 latency, logarithmic", log: true,
		xTicks: r.steps(), series: r.lines(func(row Row) float64 { return float64(row.P(.99)) / 1e3 }),
		format: tickMicros,
	}
}

func (r *Report) backgroundChart() *chart {
	c := &chart{
		title: "background CPUs against the number of spinners", xLabel: xLabel, yLabel: "CPUs that background got",
		xTicks: r.steps(), series: r.lines(func(row Row) float64 { return row.Background }),
		format: func(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) },
	}
	for _, a := range r.Arms {
		for _, row := range a.Rows {
			if row.Valid() {
				c.limit, c.note = float64(row.PodCPUs), fmt.Sprintf("all %d CPUs of the pods", row.PodCPUs)
			}
		}
	}
	return c
}

// tickMicros shows microseconds with the unit that keeps them short.
func tickMicros(us float64) string {
	if us >= 1000 {
		return strconv.FormatFloat(math.Round(us/10)/100, 'f', -1, 64) + " ms"
	}
	return strconv.FormatFloat(math.Round(us*10)/10, 'f', -1, 64) + " µs"
}

func (r *Report) steps() []string {
	var out []string
	for _, d := range r.densities() {
		out = append(out, strconv.Itoa(d))
	}
	return out
}

// lines gives each arm's values over the steps.
func (r *Report) lines(value func(Row) float64) []series {
	var out []series
	for _, a := range r.Arms {
		s := series{name: a.Name, style: a.Style}
		for _, d := range r.densities() {
			v := math.NaN()
			if row, ok := a.row(d); ok && row.Valid() {
				v = value(row)
			}
			s.y = append(s.y, v)
		}
		out = append(out, s)
	}
	return out
}

// facts lists where the records come from. What differs between records shows
// as several values.
func (r *Report) facts() []fact {
	distinct := func(of func(*bench.Record) string) string {
		seen := map[string]bool{}
		for i := range r.Records {
			seen[of(&r.Records[i])] = true
		}
		return strings.Join(slices.Sorted(maps.Keys(seen)), "\n")
	}
	packages := func(rec *bench.Record) string {
		var out []string
		for _, name := range slices.Sorted(maps.Keys(rec.Machine.Packages)) {
			out = append(out, name+" "+rec.Machine.Packages[name])
		}
		return strings.Join(out, ", ")
	}
	weights := func(rec *bench.Record) string {
		var out []string
		for _, path := range slices.Sorted(maps.Keys(rec.Window.Weights)) {
			// One background pod stands for all: they are alike.
			if !strings.Contains(path, "/besteffort/") && !strings.HasSuffix(path, "/ctr") {
				out = append(out, fmt.Sprintf("%s %d", path, rec.Window.Weights[path]))
			}
		}
		return rec.Arm.Name + ": " + strings.Join(out, ", ") + ", each background pod 1"
	}
	facts := []fact{
		{"commit", distinct(func(rec *bench.Record) string { return rec.Commit })},
		{"kernel", distinct(func(rec *bench.Record) string { return rec.Machine.Kernel })},
		{"kernel package", distinct(func(rec *bench.Record) string { return rec.Machine.KernelPackage })},
		{"kernel command lines", distinct(func(rec *bench.Record) string { return rec.Arm.Name + ": " + rec.Machine.Cmdline })},
		{"clock", distinct(func(rec *bench.Record) string {
			if rec.Machine.ClockQuantum == 0 {
				return rec.Machine.Clock
			}
			return fmt.Sprintf("%s; the vCPUs' clocks differ by at most %s", rec.Machine.Clock, micros(rec.Machine.ClockQuantum))
		})},
		{"topology", distinct(func(rec *bench.Record) string { return rec.Machine.Topology })},
		{"cpu.weight", distinct(weights)},
		{"emulator", distinct(func(rec *bench.Record) string { return rec.Machine.Emulator })},
		{"emulator arguments", distinct(func(rec *bench.Record) string { return strings.Join(rec.Machine.EmulatorArgs, " ") })},
		{"packages in the guest", distinct(packages)},
		{"host", distinct(func(rec *bench.Record) string { return fmt.Sprintf("%d × %s", rec.Host.CPUs, rec.Host.CPU) })},
		{"started", distinct(func(rec *bench.Record) string {
			return rec.Arm.Name + ": " + rec.Started.Format("2006-01-02 15:04:05 UTC")
		})},
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return strings.TrimSpace(f.Value) == "" })
}
