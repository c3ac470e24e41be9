// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Table is figures in rows, ready to be shown as text, Markdown or HTML.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
}

// field is one column of a table of cells.
type field struct {
	head string
	cell func(Cell) string
	// known says whether a cell has it: a column that none has is left out.
	known func(Cell) bool
}

func estimated(head string, of func(Cell) stats.Estimate, format func(float64) string) field {
	return field{
		head, func(c Cell) string { return with(of(c), format) },
		func(c Cell) bool { return of(c).Known() },
	}
}

// fields are the columns of every cell at p.
func (s *Section) fields(p *Point) []field {
	window := s.Scenario.Load.Window
	hasLatency := func(c Cell) bool { return c.Requests > 0 }
	return append([]field{
		estimated("p50", func(c Cell) stats.Estimate { return c.P50 }, micros),
		estimated("p95", func(c Cell) stats.Estimate { return p.quantile(c.Latency(), rare) }, micros),
		estimated("p99", func(c Cell) stats.Estimate { return p.quantile(c.Latency(), rarest) }, micros),
		estimated("p99.9", func(c Cell) stats.Estimate { return c.P999 }, micros),
		{"longest", func(c Cell) string { return micros(float64(c.Latency().Max())) }, hasLatency},
		{"requests", func(c Cell) string { return rate(float64(c.Requests)) }, hasLatency},
		estimated(p.tailName()+" "+p.over(), func(c Cell) stats.Estimate { return c.Growth }, fold),
		estimated("background CPUs", func(c Cell) stats.Estimate { return backed(c, c.Background) }, cpus),
		estimated("harvest", func(c Cell) stats.Estimate { return backed(c, c.Harvest) }, percent),
		estimated("share farthest off", s.shareError, percent),
		estimated("critical CPUs", Cell.critical, cpus),
		estimated("work a second", func(c Cell) stats.Estimate { return c.Achieved(window) }, rate),
		estimated("wakeup delay p99", func(c Cell) stats.Estimate { return c.Delay }, micros),
		estimated("inversion", func(c Cell) stats.Estimate { return c.Inversion }, tiny),
		{"longest inversion", func(c Cell) string { return micros(float64(c.InversionMax)) }, func(c Cell) bool { return c.Inversion.Known() }},
		{"longest wait", func(c Cell) string { return micros(float64(longestWait(c))) }, func(c Cell) bool { return longestWait(c) > 0 }},
	}, s.partFields(p)...)
}

// partFields are columns for what the latency is made of, and for figures that
// the primary gives by name.
func (s *Section) partFields(at *Point) []field {
	parts, values := map[string]bool{}, map[string]bool{}
	for _, p := range s.Points {
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				for name := range c.Parts {
					parts[name] = true
				}
				for _, name := range c.Values() {
					values[name] = true
				}
			}
		}
	}
	var out []field
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, estimated(name+" p99", func(c Cell) stats.Estimate { return at.quantile(c.Parts[name], .99) }, micros))
	}
	delete(values, bench.ValueFirst) // the judge's
	delete(values, bench.ValueLast)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		head, format := name, tidy
		if span, ok := strings.CutSuffix(name, "_ns"); ok {
			head, format = strings.ReplaceAll(span, "_", " "), micros
		}
		out = append(out, estimated(head, func(c Cell) stats.Estimate { return c.Value(name) }, format))
	}
	return out
}

// tidy shows a figure of unknown size to four digits.
func tidy(v float64) string {
	if v >= 1e4 {
		return rate(v)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// backed leaves out what background got where there was none.
func backed(c Cell, e stats.Estimate) stats.Estimate {
	if c.Density == 0 {
		return stats.None()
	}
	return e
}

// shareError is how far the background pod that is farthest from its weight's share is
// from it. Beside peers it would be the primary's, which wants less.
func (s *Section) shareError(c Cell) stats.Estimate {
	if s.Scenario.Peers != nil {
		return stats.None()
	}
	off, _ := c.ShareError()
	return off
}

func (c Cell) critical() stats.Estimate { return c.CriticalCPUs() }

func longestWait(c Cell) time.Duration {
	var longest time.Duration
	for _, wait := range c.WorstWait {
		longest = max(longest, wait)
	}
	return longest
}

// Every is the table with every figure of an operating point.
func (s *Section) Every(p *Point) Table {
	fields := slices.DeleteFunc(s.fields(p), func(f field) bool {
		return !slices.ContainsFunc(p.Rows, func(r Row) bool { return slices.ContainsFunc(r.Cells, f.known) })
	})
	t := Table{Title: p.Name, Head: []string{"arm", p.Neighbour + "s"}}
	for _, f := range fields {
		t.Head = append(t.Head, f.head)
	}
	for _, r := range p.Rows {
		for _, c := range r.Cells {
			row := []string{r.Name, strconv.Itoa(c.Density)}
			for _, f := range fields {
				switch {
				case c.Valid() && f.known(c):
					row = append(row, f.cell(c))
				case len(c.Void) > 0 && !c.Valid():
					row = append(row, "void")
				default:
					row = append(row, none)
				}
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// Summary is the table that stands for an operating point: a row per arm.
func (s *Section) Summary(p *Point) Table {
	if !p.Climbs() {
		return s.flat(p)
	}
	top := p.Top()
	at := func(what string) string { return fmt.Sprintf("%s at %d", what, top) }
	t := Table{Title: p.Name, Head: []string{"arm", p.tailName() + " alone", at(p.tailName()), p.over(), at("p99.9"), at("longest"), at("background CPUs"), at("harvest"), at("share farthest off"), "objective broken at", "work a second alone", at("work a second")}}
	for _, r := range p.Rows {
		idle, full := r.at(0), r.at(top)
		longest := none
		if full.Requests > 0 {
			longest = micros(float64(full.Latency().Max()))
		}
		if p.Waits && longestNoted(full) > 0 {
			longest = micros(float64(longestNoted(full)))
		}
		if !slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Valid() || len(c.Void) > 0 }) {
			continue
		}
		t.Rows = append(t.Rows, []string{
			r.Name, with(idle.Tail, micros), with(full.Tail, micros), with(full.Growth, fold), with(full.P999, micros), longest,
			with(full.Background, cpus), with(full.Harvest, percent), s.mixedShare(full), r.Break, s.closedWork(p, idle), s.closedWork(p, full),
		})
	}
	return t.dense()
}

// mixedShare is the share's error where background pods do different things: what sleeps
// now and then may lose to what only computes.
func (s *Section) mixedShare(c Cell) string {
	if len(s.Scenario.Background) == 0 {
		return none
	}
	return with(s.shareError(c), percent)
}

// closedWork is what was done in a second where no rate says how much there is to do.
func (s *Section) closedWork(p *Point, c Cell) string {
	if p.Rate > 0 {
		return none
	}
	return with(c.Achieved(s.Scenario.Load.Window), rate)
}

// flat is the summary where there is no ladder.
func (s *Section) flat(p *Point) Table {
	t := Table{Title: p.Name, Head: []string{"arm", "p50", p.tailName(), "longest", s.perOpHead(), "times " + stock, "work a second"}}
	for _, r := range p.Rows {
		c := r.at(p.Densities[0])
		against := stats.None()
		if base, ok := p.row(stock + r.Name[len(r.Base()):]); ok && base.Name != r.Name {
			against = c.ValueRatio(base.at(p.Densities[0]).Cell, perOp)
			if !against.Known() {
				against = p.tailRatio(c.Cell, base.at(p.Densities[0]).Cell)
			}
		}
		longest := none
		if c.Requests > 0 {
			longest = micros(float64(c.Latency().Max()))
		}
		t.Rows = append(t.Rows, []string{r.Name, with(c.P50, micros), with(c.Tail, micros), longest, with(c.PerOp, whole), with(against, fold), with(c.Achieved(s.Scenario.Load.Window), rate)})
	}
	return t.dense()
}

func (s *Section) perOpHead() string {
	if s.Virtual() {
		return "instructions per " + s.Scenario.Measures
	}
	return "ns per " + s.Scenario.Measures
}

func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

// Tables are those about what a scenario is made for, with their titles.
func (s *Section) Tables() []Table {
	return slices.DeleteFunc([]Table{s.Limits(), s.Shares(), s.Waits()}, func(t Table) bool { return len(t.Rows) == 0 })
}

// Shares compares pods with their weights; empty where nothing is to compare.
func (s *Section) Shares() Table {
	t := Table{Title: "CPU shares", Head: []string{"arm", "case", "pod", "tier", "weight", "threads", "asked for", "got", "off by"}}
	if !comparesPods(s.Scenario) {
		return t
	}
	for i := range s.Points {
		p := &s.Points[i]
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				for _, share := range c.Shares() {
					t.Rows = append(t.Rows, []string{
						r.Name, nameOr(p.Name, none), share.Pod.Name, share.Pod.Tier, strconv.Itoa(share.Pod.Weight), strconv.Itoa(share.Pod.Threads),
						percent(share.Asked), with(share.Got, percent), with(share.Off(), signedPercent),
					})
				}
			}
		}
	}
	return t
}

// ControlTable shows the controls.
func (s *Section) ControlTable() Table {
	t := Table{Head: []string{"control", "should", "did", ""}}
	for _, c := range s.Controls() {
		t.Rows = append(t.Rows, []string{c.Name, c.Should, c.Did, string(c.State)})
	}
	return t
}

// dense leaves out columns that no row has anything in.
func (t Table) dense() Table {
	keep := func(i int) bool {
		return i == 0 || slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != none })
	}
	out := Table{Title: t.Title}
	for i, head := range t.Head {
		if keep(i) {
			out.Head = append(out.Head, head)
		}
	}
	for _, row := range t.Rows {
		var cells []string
		for i, cell := range row {
			if keep(i) {
				cells = append(cells, cell)
			}
		}
		out.Rows = append(out.Rows, cells)
	}
	if len(out.Head) < 2 {
		return Table{} // names alone
	}
	return out
}
