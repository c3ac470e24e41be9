// SPDX-License-Identifier: Apache-2.0

// Package ladder folds records into what can be compared: for each arm and
// step, what every seed counted. Reports, comparisons and targets are made of
// ladders and of nothing else, so that they cannot disagree.
//
// Windows are judged again while they are folded, and a window that is void
// enters no figure, whatever its line says. Records are dropped as they are
// read: a campaign is larger than its ladders by orders of magnitude.
package ladder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/verify"
)

// Ladder is one scenario on one topology under one clock: the most that belongs
// into one table.
type Ladder struct {
	Source   string // the directory's name
	Dir      string // its path, as whoever read it gave it
	Scenario bench.Scenario
	Machine  bench.Machine // of the first record
	Arms     []*Arm        // as reports show them
	Seeds    []uint64
	Windows  int
	Void     []Void
	Facts    Facts
	Absent   []string // topologies that were planned and have no window
	plans    []bench.Plan
	runs     map[run]int     // windows of each
	windows  map[string]bool // by ID
}

// Arm is one arm's cells.
type Arm struct {
	bench.Arm
	// Style is its colour, dash and marker, the same in every report.
	Style int
	cells map[Key]*Cell
}

// Key is an operating point and a density: what a window is called a step of.
// A ladder that goes up and down visits it twice.
type Key struct {
	Point   string
	Density int
}

// Null is the name of the operating point at which the primary is nearly idle: a
// control.
const Null = "null"

// Void is a window that no figure is made of.
type Void struct {
	ID      string
	Arm     string
	Reasons []string
}

// Read folds the records in dir into ladders, in the order in which the file
// has them. Every line must be as it was written, and all of one campaign.
func Read(dir string) ([]*Ladder, error) {
	path := filepath.Join(dir, bench.RecordFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	defer f.Close()
	fold := NewFold(nameOf(dir))
	err = bench.ScanRecords(f, func(l bench.Line) error {
		err := l.Intact()
		if err == nil {
			err = fold.Add(l.Record)
		}
		if err != nil {
			return fmt.Errorf("%w: line %d: %w", bench.ErrUnsound, l.Number, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	ladders, err := fold.Ladders()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for _, l := range ladders {
		l.Dir = dir
	}
	return ladders, nil
}

// nameOf is a directory's name, also where it is called "." or "..".
func nameOf(dir string) string {
	path, err := filepath.Abs(dir)
	if err != nil {
		path = dir // no working directory: the path is all there is
	}
	return filepath.Base(path)
}

// Fold takes records one by one.
type Fold struct {
	source   string
	campaign string
	keys     []string
	ladders  map[string]*Ladder
}

// NewFold returns a fold for the records of one directory.
func NewFold(source string) *Fold {
	return &Fold{source: source, ladders: map[string]*Ladder{}}
}

// Add folds one record. A window that is there already would count twice, one of another
// campaign may be of another engine, and one of another machine compares with none.
func (f *Fold) Add(rec *bench.Record) error {
	if len(f.keys) == 0 {
		f.campaign = rec.Campaign
	}
	if rec.Campaign != f.campaign {
		return fmt.Errorf("window %s is of campaign %s, those before it of %s", rec.ID(), rec.Campaign, f.campaign)
	}
	scenario, err := json.Marshal(rec.Scenario)
	if err != nil {
		return fmt.Errorf("encode scenario %s: %w", rec.Scenario.Name, err)
	}
	key := strings.Join([]string{string(scenario), rec.Machine.Topology, rec.Machine.Clock}, "\n")
	l := f.ladders[key]
	if l == nil {
		l = &Ladder{Source: f.source, Scenario: rec.Scenario, Machine: rec.Machine, Facts: Facts{}, runs: map[run]int{}, windows: map[string]bool{}}
		f.ladders[key], f.keys = l, append(f.keys, key)
	}
	if apart := verify.Apart(l.Machine, rec.Machine); len(apart) > 0 {
		return fmt.Errorf("window %s ran on another machine than those before it: %s", rec.ID(), apart[0])
	}
	if l.windows[rec.ID()] {
		return fmt.Errorf("window %s is there twice", rec.ID())
	}
	l.windows[rec.ID()] = true
	l.add(rec)
	return nil
}

// Ladders returns what was folded so far.
func (f *Fold) Ladders() ([]*Ladder, error) {
	if len(f.keys) == 0 {
		return nil, errors.New("no records")
	}
	there := map[setting]bool{}
	for _, l := range f.ladders {
		there[setting{l.Scenario.Name, l.Machine.Topology}] = true
	}
	var out []*Ladder
	for _, key := range f.keys {
		l := f.ladders[key]
		l.Absent = l.absent(there)
		slices.Sort(l.Seeds)
		slices.SortStableFunc(l.Arms, func(a, b *Arm) int {
			return cmp.Or(cmp.Compare(place(a.Arm), place(b.Arm)), cmp.Compare(a.Name, b.Name))
		})
		l.style()
		out = append(out, l)
	}
	return out, nil
}

// styled are the arms that charts show, by what kind says of them. Their places are
// their colours' numbers in the page's style sheet: a new one goes to the end.
var styled = []string{
	"eevdf", "eevdf-tuned", "static", "temper", "eevdf-10ms", "eevdf-burst", "exec:",
	":landing", ":whole-layer", ":no-limit", ":no-preempt",
}

// kind is what an arm's looks go by: its modifiers if it has any, else its base.
func kind(arm bench.Arm) string {
	switch base := arm.Base(); {
	case base != arm.Name:
		return strings.TrimPrefix(arm.Name, base)
	case arm.Exec != nil:
		return "exec:"
	}
	return arm.Name
}

// style gives arms their looks. Those that have none, or would look alike, as two
// schedulers of a user, get numbers of their own; controls last, since charts seldom
// show them.
func (l *Ladder) style() {
	free := len(styled)
	taken := map[int]bool{}
	for _, control := range []bool{false, true} {
		for _, a := range l.Arms {
			if a.Control() != control {
				continue
			}
			if a.Style = slices.Index(styled, kind(a.Arm)); a.Style < 0 || taken[a.Style] {
				a.Style = free
				free++
			}
			taken[a.Style] = true
		}
	}
}

func (l *Ladder) add(rec *bench.Record) {
	l.Windows++
	l.plan(rec.Plan)
	l.runs[run{rec.Arm.Name, rec.Seed}]++
	l.Facts.add(rec)
	if !slices.Contains(l.Seeds, rec.Seed) {
		l.Seeds = append(l.Seeds, rec.Seed)
	}
	cell := l.arm(rec.Arm).cell(rec.Window.Step)
	cell.tried[rec.Seed] = true
	if reasons := bench.Judge(rec).Reasons; len(reasons) > 0 {
		l.Void = append(l.Void, Void{ID: rec.ID(), Arm: rec.Arm.Name, Reasons: reasons})
		cell.Void, cell.Voids = append(cell.Void, reasons...), cell.Voids+1
		return
	}
	cell.add(rec)
}

func (l *Ladder) arm(arm bench.Arm) *Arm {
	if a := l.Arm(arm.Name); a != nil {
		return a
	}
	a := &Arm{Arm: arm, cells: map[Key]*Cell{}}
	l.Arms = append(l.Arms, a)
	return a
}

// Arm returns the arm called name, nil if no window ran under it.
func (l *Ladder) Arm(name string) *Arm {
	if i := slices.IndexFunc(l.Arms, func(a *Arm) bool { return a.Name == name }); i >= 0 {
		return l.Arms[i]
	}
	return nil
}

// place orders the arms: the base arms in their order, then a user's, then what
// modifiers make of them.
func place(arm bench.Arm) int {
	bases, mods := bench.Arms(), bench.Modifiers()
	if arm.Base() == arm.Name {
		i := slices.IndexFunc(bases, func(a bench.Arm) bool { return a.Name == arm.Name })
		if i < 0 {
			return len(bases)
		}
		return i
	}
	modifier := strings.TrimPrefix(arm.Name, arm.Base()+":")
	return len(bases) + 1 + max(0, slices.IndexFunc(mods, func(m bench.Modifier) bool { return m.Name == modifier }))
}

// Control says whether the arm is there to check the instrument, not to be
// compared for itself.
func (a *Arm) Control() bool { return a.Again || a.NoProbe || a.Inverted }

// Ablation says whether the arm is another one less a part of it.
func (a *Arm) Ablation() bool { return !a.Control() && a.Base() != a.Name }

// Cell returns the arm's cell at a step; an empty one if no window is there.
func (a *Arm) Cell(point string, density int) *Cell {
	if a != nil {
		if c := a.cells[Key{point, density}]; c != nil {
			return c
		}
	}
	return &Cell{Key: Key{point, density}}
}

func (a *Arm) cell(step bench.Step) *Cell {
	key := Key{step.Point, step.Density}
	if a.cells[key] == nil {
		a.cells[key] = newCell(key, step.Rate)
	}
	return a.cells[key]
}

// Densities lists the ladder's densities that any arm has at a point, ascending.
func (l *Ladder) Densities(point string) []int {
	var out []int
	for _, a := range l.Arms {
		for key := range a.cells {
			if key.Point == point && !slices.Contains(out, key.Density) {
				out = append(out, key.Density)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Points lists the operating points that windows exist of, in the scenario's
// order; one without a name if it has none.
func (l *Ladder) Points() []bench.Point {
	points := slices.Clone(l.Scenario.Points)
	if len(points) == 0 {
		points = []bench.Point{{}}
	}
	return slices.DeleteFunc(points, func(p bench.Point) bool { return len(l.Densities(p.Name)) == 0 })
}

// Rate is what the client asks at an operating point, in requests a second.
func (l *Ladder) Rate(point string) float64 {
	for _, s := range l.Scenario.Steps() {
		if s.Point == point {
			return s.Rate
		}
	}
	return 0
}

// Main is the operating point that headlines speak of: of those with a valid window
// the one with the most to do, or the first where none has a rate. Who is asked again as
// soon as it has answered has more to do than at any rate; only the agent rests without one.
func (l *Ladder) Main() bench.Point {
	points := l.Points()
	if len(points) == 0 {
		return bench.Point{}
	}
	if valid := slices.DeleteFunc(slices.Clone(points), func(p bench.Point) bool { return !l.valid(p.Name) }); len(valid) > 0 {
		points = valid
	}
	load := func(p bench.Point) float64 {
		if rate := l.Rate(p.Name); rate > 0 || l.Scenario.KindOf().Agent {
			return rate
		}
		return math.Inf(1)
	}
	return slices.MaxFunc(points, func(a, b bench.Point) int { return cmp.Compare(load(a), load(b)) })
}

// valid says whether any window of an operating point is.
func (l *Ladder) valid(point string) bool {
	return slices.ContainsFunc(l.Arms, func(a *Arm) bool {
		return slices.ContainsFunc(l.Densities(point), func(density int) bool { return a.Cell(point, density).Valid() })
	})
}
