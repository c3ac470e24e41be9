// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Figure is one drawing with its caption.
type Figure struct {
	SVG     template.HTML
	Caption string
}

// Charts are the drawings of an operating point, as many as it has figures for.
func (p *Point) Charts(s *Section) []Figure {
	if !p.Climbs() {
		return nil
	}
	var out []Figure
	rivals := p.Rivals()
	if measured(rivals, func(c Cell) stats.Estimate { return c.Tail }) {
		out = append(out, Figure{p.tail(s, rivals).svg(), "Tail against density. " + s.bands() + p.objective()})
	}
	if measured(rivals, func(c Cell) stats.Estimate { return c.Growth }) {
		c, caption := p.growth(rivals), "The same over each arm's own tail without background, seen closer."
		if p.Occupied {
			caption = "The same over the tail under static at the same density, seen closer."
		}
		if slices.Max(c.ys()) > closer {
			caption += " What leaves at the top goes on above."
		}
		out = append(out, Figure{c.svg(), caption})
	}
	if measured(rivals, func(c Cell) stats.Estimate { return c.Background }) {
		out = append(out, Figure{p.background(rivals).svg(), "What background got meanwhile."})
	}
	if f := p.frontier(rivals); f != nil {
		out = append(out, Figure{f.svg(), "The frontier: up is a longer tail, right is more CPUs for background, so that lower and farther right is better." + p.paths()})
	}
	return out
}

// bands says what a chart's bands are worth: as the caveats, which explain it.
func (s *Section) bands() string {
	few, most := s.seeds()
	switch {
	case most == 1:
		return "One seed: there are no intervals."
	case s.OneBoot():
		return "Bands are the intervals of seeds on one boot."
	case most < fewSeeds:
		return fmt.Sprintf("Bands are what %s seeds can be drawn to.", between(int64(few), int64(most)))
	case few < fewSeeds:
		return fmt.Sprintf("Bands are 95 %% intervals where there are %d seeds or more.", fewSeeds)
	}
	return "Bands are 95 % intervals."
}

// ProbeCharts are what the probe saw: the same in every arm.
func (p *Point) ProbeCharts(s *Section) []Figure {
	if !p.Climbs() {
		return nil
	}
	var out []Figure
	rivals := p.Rivals()
	delay := func(c Cell) stats.Estimate { return c.Delay }
	if measured(rivals, delay) {
		c := p.overDensity(rivals, delay, "wakeup delay of the critical tier at p99, log", tickMicros, true)
		out = append(out, Figure{c.svg(), "From a critical thread's waking until it runs, by the probe."})
	}
	inversion := func(c Cell) stats.Estimate { return c.Inversion }
	some := func(c Cell) stats.Estimate {
		if c.Inversion.Figure > 0 {
			return c.Inversion
		}
		return stats.None()
	}
	if measured(rivals, some) {
		c := p.overDensity(rivals, inversion, "inversion time per critical CPU time, log", tickPower, true)
		// A power of ten, so that what lies at the lower end has a tick there.
		low := math.Pow(10, math.Floor(math.Log10(c.y.low)+1e-9))
		c.y.low, c.y.high, c.floor = low/10, math.Max(c.y.high, c.y.low*10), "0"
		out = append(out, Figure{c.svg(), inversionCaption(s.Scenario)})
	}
	return out
}

// reclaim is RECLAIM_NS of bpf/probe.bpf.c.
const reclaim = 32 * time.Microsecond

func inversionCaption(s bench.Scenario) string {
	text := fmt.Sprintf("Time a critical thread waited while a lower tier ran where it may run, for each second it ran. Of each wait only what goes beyond %d%sµs counts: taking a CPU back may cost that.", reclaim.Microseconds(), nbsp)
	if s.Primary.LimitMilliCPU > 0 {
		text += " " + limitedWaits
	}
	return text
}

// AblationCharts show what a part of ours is good for.
func (p *Point) AblationCharts(s *Section) []Figure {
	rows := p.Ablations()
	if rows == nil || !p.Climbs() {
		return nil
	}
	var out []Figure
	if measured(rows, func(c Cell) stats.Estimate { return c.Tail }) {
		out = append(out, Figure{p.tail(s, rows).svg(), "Temper, and Temper with a part changed or left out." + p.objective()})
	}
	if measured(rows, func(c Cell) stats.Estimate { return c.Background }) {
		out = append(out, Figure{p.background(rows).svg(), "What background got meanwhile."})
	}
	if f := p.frontier(rows); f != nil {
		out = append(out, Figure{f.svg(), "The frontier of the same arms."})
	}
	return out
}

func (p *Point) tail(s *Section, rows []Row) *chart {
	c := p.overDensity(rows, func(c Cell) stats.Estimate { return c.Tail }, p.tailName()+" "+s.Scenario.Measures+", log", tickMicros, true)
	if p.SLO > 0 {
		c.limit, c.note = p.SLO, "objective"
		c.y.fit(append(c.ys(), p.SLO)...)
	}
	return c
}

// objective says of a caption what the line of that name is; on the line itself
// it would lie on the data.
func (p *Point) objective() string {
	if p.SLO == 0 {
		return ""
	}
	return " The objective is twice the " + p.tailName() + " of " + stock + " without background."
}

// closer is where the close view of the growth ends.
const closer = 1.5

func (p *Point) growth(rows []Row) *chart {
	label := p.tailName() + " over own " + p.tailName() + " without background"
	if p.Occupied {
		label = p.tailName() + " over that under static"
	}
	c := p.overDensity(rows, func(c Cell) stats.Estimate {
		if c.Density == 0 && c.Tail.Known() && !p.Occupied {
			return stats.Estimate{Figure: 1, Low: 1, High: 1, Seeds: c.Tail.Seeds}
		}
		return c.Growth
	}, label, fold, false)
	low, high := 1.0, 1.1
	for _, y := range c.ys() {
		low, high = math.Min(low, y), math.Max(high, y)
	}
	c.y.low, c.y.high, c.y.cut = math.Max(.05*math.Floor(low/.05), .5), math.Min(.05*math.Ceil(1.01*high/.05), closer), true
	c.limit = 1
	return c
}

func (p *Point) background(rows []Row) *chart {
	c := p.overDensity(rows, func(c Cell) stats.Estimate { return c.Background }, "CPUs that background got", plain, false)
	for _, r := range rows {
		for _, cell := range r.Cells {
			if cell.PodCPUs > 0 {
				c.limit, c.note = float64(cell.PodCPUs), fmt.Sprintf("all %d CPUs of the pods", cell.PodCPUs)
			}
		}
	}
	c.y.fit(append(c.ys(), c.limit*1.05)...)
	return c
}

// overDensity draws a figure of each row against the ladder's steps.
func (p *Point) overDensity(rows []Row, of func(Cell) stats.Estimate, label string, format func(float64) string, log bool) *chart {
	c := &chart{
		title: label + ", against the number of background " + p.Neighbour + "s",
		x:     axis{label: "background " + p.Neighbour + "s"}, y: axis{label: label, log: log, format: format},
	}
	for _, d := range p.Densities {
		c.steps = append(c.steps, strconv.Itoa(d))
	}
	for _, r := range rows {
		line := series{name: r.Name, style: r.Style, band: true}
		for _, cell := range r.Cells {
			line.points = append(line.points, point{label: number(cell.Density, p.Neighbour), y: of(cell)})
		}
		c.series = append(c.series, line)
	}
	c.y.fit(c.ys()...)
	return c
}

// paths says how to follow an arm over a frontier, which leaves out the step without
// background.
func (p *Point) paths() string {
	steps := slices.DeleteFunc(slices.Clone(p.Densities), func(d int) bool { return d == 0 })
	if len(steps) == 1 {
		return fmt.Sprintf(" All marks are at %s.", number(steps[0], p.Neighbour))
	}
	return fmt.Sprintf(" Each path goes from %s to %d.", number(slices.Min(steps), p.Neighbour), slices.Max(steps))
}

// frontier draws the tail against the CPUs that background got: not against its share of
// what was left, which is all of it for whoever leaves little. The tail is over the stock
// kernel's without background, so that arms share one scale.
func (p *Point) frontier(rows []Row) *chart {
	base := p.cell(stock, 0)
	if !base.Tail.Known() || p.Occupied {
		return nil
	}
	c := &chart{
		title: p.tailName() + " over that of " + stock + " without background, against the CPUs that background gets",
		x:     axis{label: "CPUs that background gets", format: plain},
		y:     axis{label: p.tailName() + ", times idle " + stock + ", log", log: true, format: fold1},
	}
	most := 0.0
	for _, r := range rows {
		path := series{name: r.Name, style: r.Style}
		for _, cell := range r.Cells {
			if cell.PodCPUs > 0 {
				most = float64(cell.PodCPUs)
			}
			if cell.Density > 0 {
				path.points = append(path.points, point{number(cell.Density, p.Neighbour), cell.Background, p.tailRatio(cell.Cell, base.Cell)})
			}
		}
		c.series = append(c.series, path)
	}
	if !slices.ContainsFunc(c.series, func(s series) bool { return slices.ContainsFunc(s.points, c.shown) }) {
		return nil
	}
	if most > 0 {
		c.x.label += fmt.Sprintf(", of the pods' %.0f", most)
	}
	c.x.fit(append(c.xs(), most)...)
	c.y.fit(append(c.ys(), 1)...)
	return c
}

// ys are all the values that the y axis must show.
func (c *chart) ys() []float64 {
	var out []float64
	for _, s := range c.series {
		for _, p := range s.points {
			if c.shown(p) {
				out = append(out, p.y.Figure, p.y.Low, p.y.High)
			}
		}
	}
	return out
}

// xs are all the figures that the x axis must show.
func (c *chart) xs() []float64 {
	var out []float64
	for _, s := range c.series {
		for _, p := range s.points {
			if c.shown(p) {
				out = append(out, p.x.Figure)
			}
		}
	}
	return out
}

// tickMicros shows nanoseconds with the unit that keeps them short.
func tickMicros(ns float64) string {
	trim := func(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }
	switch {
	case ns >= 1e6:
		return trim(ns/1e6) + nbsp + "ms"
	case ns >= 1e3:
		return trim(ns/1e3) + nbsp + "µs"
	}
	return trim(ns) + nbsp + "ns"
}

func tickPower(v float64) string {
	if v == 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func plain(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

func fold1(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) + "×" }
