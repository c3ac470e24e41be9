// SPDX-License-Identifier: Apache-2.0

// Package report makes text and pages of ladders, and of nothing else: whoever
// has the records can make the same report.
package report

import (
	"slices"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// The arms that sentences speak of.
const (
	ours   = "temper"
	stock  = "eevdf"
	static = "static"
)

// perOp is the primary's own figure of what one operation took.
const perOp = "ns_per_op"

// Report is what one directory of records says.
type Report struct {
	Source   string
	Sections []*Section
}

// Section is one ladder with its figures. Estimates are made once: each costs
// thousands of resamples.
type Section struct {
	*ladder.Ladder
	Points []Point
	Main   *Point
}

// Point is a section's operating point.
type Point struct {
	bench.Point
	Rate      float64
	Densities []int
	// Neighbour is the word for one of the background pods.
	Neighbour string
	Rows      []Row
	// Tail is the quantile that stands for the tail here.
	Tail float64
	// Waits is where each wait is noted when it ends. Who waits longer notes fewer, so
	// that no quantile of them compares two arms.
	Waits bool
	// SLO is the objective in nanoseconds, 0 where there is nothing to take it from: no
	// stock kernel, or one that freezes the pod at its CPU limit for most of a period.
	SLO float64
	// Occupied is where all vCPUs share one clock: a busier guest is a slower one
	// under any scheduler, so that an arm is held against `static` at the same
	// density, the occupied control, and densities never against each other.
	Occupied bool
}

// Row is one arm at one operating point.
type Row struct {
	*ladder.Arm
	Cells []Cell
	Break string // where it leaves the objective
}

// Cell is one step's figures.
type Cell struct {
	*ladder.Cell
	P50        stats.Estimate
	Tail       stats.Estimate // the quantile is Point.Tail; None where too few requests carry it
	P999       stats.Estimate // None where too few requests carry it
	Growth     stats.Estimate // of the tail over Point.reference
	Background stats.Estimate
	Harvest    stats.Estimate
	Delay      stats.Estimate // p99 of the critical tier's wakeup delay, by the probe
	Inversion  stats.Estimate
	PerOp      stats.Estimate
	Requests   int64
}

// Read makes a report of the records in dir.
func Read(dir string) (*Report, error) {
	ladders, err := ladder.Read(dir)
	if err != nil {
		return nil, err
	}
	return New(ladders), nil
}

// New makes a report of the ladders of one directory.
func New(ladders []*ladder.Ladder) *Report {
	r := &Report{Source: ladders[0].Source}
	for _, l := range ladders {
		r.Sections = append(r.Sections, newSection(l))
	}
	return r
}

// Windows is how many windows there are, and how many of them are void.
func (r *Report) Windows() (all, void int) {
	for _, s := range r.Sections {
		all, void = all+s.Windows, void+len(s.Void)
	}
	return all, void
}

func newSection(l *ladder.Ladder) *Section {
	s := &Section{Ladder: l}
	for _, p := range l.Points() {
		s.Points = append(s.Points, newPoint(l, p))
	}
	for i := range s.Points {
		if s.Points[i].Name == l.Main().Name {
			s.Main = &s.Points[i]
		}
	}
	return s
}

func newPoint(l *ladder.Ladder, p bench.Point) Point {
	out := Point{
		Point: p, Rate: l.Rate(p.Name), Densities: l.Densities(p.Name), Neighbour: l.Scenario.Neighbour(),
		Occupied: l.Machine.Clock == bench.ClockShared, Waits: notesWaits(l.Scenario),
	}
	out.Tail = tailOf(fewestRequests(l, &out))
	for _, a := range l.Arms {
		row := Row{Arm: a, Break: none}
		for _, d := range out.Densities {
			base := a.Cell(p.Name, 0)
			if out.Occupied {
				base = l.Arm(static).Cell(p.Name, d)
			}
			row.Cells = append(row.Cells, out.newCell(a.Cell(p.Name, d), base))
		}
		out.Rows = append(out.Rows, row)
	}
	if idle := out.cell(stock, 0); idle.Tail.Known() && out.Climbs() && !out.Occupied && l.Scenario.Primary.LimitMilliCPU == 0 {
		out.SLO = stats.SLO(idle.Tail)
		for i := range out.Rows {
			out.Rows[i].Break = breakDensity(out.Rows[i], out.SLO)
		}
	}
	return out
}

// fewestRequests is the smallest number that a step with any has at a point.
func fewestRequests(l *ladder.Ladder, p *Point) int64 {
	var fewest int64
	for _, a := range l.Arms {
		for _, d := range p.Densities {
			if n := a.Cell(p.Name, d).Latency().Total(); n > 0 && (fewest == 0 || n < fewest) {
				fewest = n
			}
		}
	}
	return fewest
}

// reference says what growth is over.
func (p *Point) reference() string {
	if p.Occupied {
		return "that under static"
	}
	return "its own without any"
}

// over is reference in a table's head.
func (p *Point) over() string {
	if p.Occupied {
		return "over static"
	}
	return "over own idle"
}

func (p *Point) newCell(cell, base *ladder.Cell) Cell {
	latency := cell.Latency()
	c := Cell{
		Cell: cell, P50: p.quantile(latency, .5), Tail: p.quantile(latency, p.Tail), P999: p.quantile(latency, .999),
		Growth: stats.None(), Delay: stats.None(), Requests: latency.Total(),
	}
	if cell.Density > 0 && cell != base {
		c.Growth = p.tailRatio(cell, base)
	}
	if delay := cell.Delay["critical"]; stats.Carries(.99, delay.Total()) {
		c.Delay = stats.Quantile(delay, .99)
	}
	c.Background, c.Harvest = c.BackgroundCPUs(), cell.Harvest()
	c.Inversion, c.PerOp = cell.Inversion(), c.Value(perOp)
	return c
}

func breakDensity(row Row, slo float64) string {
	var steps []stats.Step
	for _, c := range row.Cells {
		steps = append(steps, stats.Step{Density: c.Density, Tail: c.Tail})
	}
	return stats.BreakDensity(steps, slo)
}

// cell is an arm's cell at a density, without figures if there is none.
func (p *Point) cell(arm string, density int) Cell {
	if row, ok := p.row(arm); ok {
		return row.at(density)
	}
	return emptyCell()
}

func emptyCell() Cell {
	n := stats.None()
	return Cell{Cell: &ladder.Cell{}, P50: n, Tail: n, P999: n, Growth: n, Background: n, Harvest: n, Delay: n, Inversion: n, PerOp: n}
}

func (p *Point) row(arm string) (Row, bool) {
	i := slices.IndexFunc(p.Rows, func(r Row) bool { return r.Name == arm })
	if i < 0 {
		return Row{}, false
	}
	return p.Rows[i], true
}

func (r Row) at(density int) Cell {
	if i := slices.IndexFunc(r.Cells, func(c Cell) bool { return c.Density == density }); i >= 0 {
		return r.Cells[i]
	}
	return emptyCell()
}

// Top is the highest density.
func (p *Point) Top() int { return slices.Max(p.Densities) }

// Climbs says whether there are densities to compare.
func (p *Point) Climbs() bool { return len(p.Densities) > 1 }

// Rivals are the rows to be compared: no controls, and ablations apart. Where
// nothing else is there, these.
func (p *Point) Rivals() []Row {
	rivals := slices.DeleteFunc(slices.Clone(p.Rows), func(r Row) bool { return r.Control() || r.Ablation() })
	if len(rivals) == 0 {
		return p.Rows
	}
	return rivals
}

// Ablations are ours and what it becomes without a part.
func (p *Point) Ablations() []Row {
	rows := slices.DeleteFunc(slices.Clone(p.Rows), func(r Row) bool { return r.Control() || r.Base() != ours })
	if len(rows) < 2 {
		return nil
	}
	return rows
}

// Measured says whether any row has a figure of the kind.
func (p *Point) Measured(of func(Cell) stats.Estimate) bool { return measured(p.Rows, of) }

// measured says the same of some of them: what a chart does not show makes no chart.
func measured(rows []Row, of func(Cell) stats.Estimate) bool {
	return slices.ContainsFunc(rows, func(r Row) bool {
		return slices.ContainsFunc(r.Cells, func(c Cell) bool { return of(c).Known() })
	})
}

// Subject is what the figures at a point are of: "memcached's p99 request latency".
func (s *Section) Subject(p *Point) string {
	if s.Scenario.KindOf().Server {
		name, ok := serverNames[s.Scenario.Primary.Kind]
		if !ok {
			name = s.Scenario.Primary.Kind
		}
		return name + "'s " + p.tailName() + " " + s.Scenario.Measures
	}
	return p.tailName() + " " + s.Scenario.Measures
}

// serverNames are those that their makers write otherwise than we do.
var serverNames = map[string]string{"redis": "Redis", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}

// ClockWords say what time the figures are of.
func (s *Section) ClockWords() string {
	if s.Virtual() {
		return "virtual time"
	}
	return "wall clock"
}

// Virtual says whether time is counted in instructions.
func (s *Section) Virtual() bool { return s.Machine.Virtual() || s.Machine.Clock == bench.ClockOpen }
