// SPDX-License-Identifier: Apache-2.0

// Package targets says which of the project's targets committed records show to
// be met. It computes from ladders alone and believes nobody's word: a target
// without a record is neither met nor missed.
package targets

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Target is one row: what was promised and what the records say.
type Target struct {
	ID string `json:"id"`
	// Figure, Interval and Record are those of the part that decides: one that
	// is missed if there is any, else the first.
	Figure   *float64    `json:"figure"`
	Interval *[2]float64 `json:"interval"`
	Target   string      `json:"target"`
	// Met is nil where records do not say: there is none, or of too few seeds, or of a part of a campaign.
	Met    *bool  `json:"met"`
	Record string `json:"record"`
	Note   string `json:"note"`
	Parts  []Part `json:"parts,omitempty"`
}

// Part is one of the conditions that a target consists of, at its worst step.
type Part struct {
	What     string      `json:"what"`
	Figure   *float64    `json:"figure"`
	Interval *[2]float64 `json:"interval"`
	Bound    string      `json:"bound"`
	Met      *bool       `json:"met"`
	Record   string      `json:"record"`
	Where    string      `json:"where,omitempty"` // the step
	Note     string      `json:"note,omitempty"`
	Void     string      `json:"void,omitempty"` // why a step is not known
	Text     string      `json:"-"`              // figure and interval as prose has them
}

// Records is the directory of committed records, from the repository's root.
const Records = "bench/records"

// Load reads all ladders below root, oldest directory first. One that cannot be read
// fails all, as without it a target could be met, and so do none at all.
func Load(root string) ([]*ladder.Ladder, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, bench.RecordFile)); err == nil {
		return nil, fmt.Errorf("list records: %s is a record directory itself: name the one above it", root)
	}
	var out []*ladder.Ladder
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if st, err := os.Stat(dir); err != nil { // of what a link leads to
			return nil, fmt.Errorf("list records: %w", err)
		} else if !st.IsDir() {
			continue
		}
		ladders, err := ladder.Read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, ladders...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("list records: no record directory below %s", root)
	}
	return out, nil
}

// All returns every target in the design's order. The ladders' directories are
// below root.
func All(root string, ladders []*ladder.Ladder) []Target {
	set := usable(ladders)
	var out []Target
	for _, s := range specs() {
		t := Target{ID: s.id, Target: s.target, Note: s.note}
		if s.parts != nil {
			parts := s.parts(set)
			for i := range parts {
				if parts[i].Record != "" {
					parts[i].Record = path.Join(root, parts[i].Record)
				}
			}
			t.decide(parts)
		}
		if t.Met == nil && t.Note == "" {
			t.Note = "no record yet"
		}
		out = append(out, t)
	}
	return out
}

// decide sums up the parts: missed if one is, met if all are.
func (t *Target) decide(parts []Part) {
	t.Parts = parts
	if len(parts) == 0 {
		return
	}
	decides := parts[0]
	met, known := true, true
	for _, p := range parts {
		switch {
		case p.Met == nil:
			known = false
		case !*p.Met && met:
			met, decides = false, p
		}
	}
	t.Figure, t.Interval, t.Record = decides.Figure, decides.Interval, decides.Record
	switch {
	case !met, known:
		t.Met = &met
	default:
		said := slices.DeleteFunc([]string{t.Note, missing(parts), unproven(parts), voided(parts)}, func(s string) bool { return s == "" })
		t.Note = strings.Join(said, ". ")
	}
	if !met {
		t.Note = strings.TrimPrefix(t.Note+". "+missed(parts), ". ")
	}
}

func missing(parts []Part) string {
	var names []string
	for _, p := range parts {
		if p.Figure == nil && p.Void == "" {
			names = append(names, p.What)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "no record yet: " + strings.Join(names, "; ")
}

func unproven(parts []Part) string {
	var out []string
	for _, p := range parts {
		if p.Figure != nil && p.Met == nil && p.Void == "" {
			out = append(out, p.What+" ("+p.Note+")")
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "not proven: " + strings.Join(out, "; ")
}

func voided(parts []Part) string {
	i := slices.IndexFunc(parts, func(p Part) bool { return p.Void != "" })
	if i < 0 {
		return ""
	}
	return parts[i].What + ": " + parts[i].Void
}

func missed(parts []Part) string {
	var out []string
	for _, p := range parts {
		if p.Met != nil && !*p.Met {
			text := fmt.Sprintf("missed: %s is %s (%s)", p.What, p.Text, p.Where)
			if p.Note != "" {
				text += ", " + p.Note
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// set is the ladders that figures may be made of.
type set []*ladder.Ladder

// dated begins the name of a record directory.
var dated = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}-`)

// usable keeps the ladders that targets may be judged by. Targets are ratios between
// densities, so that only a clock per vCPU will do: where the clock is shared, or the
// host's, densities differ by more than the scheduler. They speak of critical pods: where
// the primary is its neighbours' equal, it is to wait for its share.
func usable(ladders []*ladder.Ladder) set {
	out := slices.DeleteFunc(set(slices.Clone(ladders)), func(l *ladder.Ladder) bool { return unusable(l) != "" })
	slices.SortStableFunc(out, func(a, b *ladder.Ladder) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Scenario.Name, b.Scenario.Name))
	})
	return out
}

// unusable says why no target is judged by a ladder; "" if one may be.
func unusable(l *ladder.Ladder) string {
	switch {
	case l.Machine.Clock != bench.ClockPerVCPU:
		return fmt.Sprintf("timed by the clock %q", l.Machine.Clock)
	case l.Scenario.Peers != nil:
		return "nobody in it is critical"
	case l.Arm(ours) == nil && l.Arm(ours+unmeasured) == nil:
		return "Temper is not in it"
	}
	return ""
}

// LeftOut lists the records that no target is judged by, each with the reason.
func LeftOut(ladders []*ladder.Ladder) []string {
	var out []string
	for _, l := range ladders {
		if why := unusable(l); why != "" {
			out = append(out, fmt.Sprintf("%s: %s", l.Source, why))
		}
	}
	return slices.Compact(out)
}

// rank puts the topology that targets are stated for first.
func rank(l *ladder.Ladder) int {
	if l.Machine.Topology == "1s4c1t" {
		return 0
	}
	return 1
}

// of returns the ladders whose primary is of one of the kinds.
func (s set) of(kinds ...string) set {
	return slices.DeleteFunc(slices.Clone(s), func(l *ladder.Ladder) bool { return !slices.Contains(kinds, l.Scenario.Primary.Kind) })
}

// place says where a figure is from, for people.
func place(l *ladder.Ladder, point string, density int) string {
	parts := []string{l.Scenario.Name, l.Machine.Topology}
	if point != "" {
		parts = append(parts, point)
	}
	if density >= 0 {
		parts = append(parts, fmt.Sprintf("%d %ss", density, l.Scenario.Neighbour()))
	}
	return strings.Join(parts, ", ")
}

// sample is an estimate and the step it is of.
type sample struct {
	stats.Estimate
	ladder *ladder.Ladder
	where  string
	detail string // of the figure, not of the step
	// look is set where too few seeds were tried to stand for an engine.
	look bool
	// worst is set where the figure is the worst of all windows: it has no
	// interval, however many seeds there were.
	worst bool
	// void is set where there is no figure because all windows of a cell are void.
	void bool
	// thin is set where there is no figure because too few requests carry it.
	thin bool
	// doubt is why the figure meets nothing, however good it is: it is of what is left
	// of a campaign, and what is not there may have been the worst of it.
	doubt string
}

// fewVoid is the most that may be void of a step's windows, one in so many, where the
// others are to meet a target.
const fewVoid = 10

// of is a sample that was made of cells.
func of(l *ladder.Ladder, where string, e stats.Estimate, cells ...*ladder.Cell) sample {
	s := sample{Estimate: e, ladder: l, where: where}
	for _, c := range cells {
		s.look = s.look || c.Tried() < provingSeeds
		s.void = s.void || !e.Known() && !c.Valid() && c.Voids > 0
		if c.Voids*fewVoid > c.Voids+c.Windows {
			s.doubt = fmt.Sprintf("%d of %d windows are void at %s", c.Voids, c.Voids+c.Windows, where)
		}
	}
	for _, lacks := range l.Lacks() {
		s.doubt = fmt.Sprintf("of %s only %d of %d planned seeds are there", lacks.Arm, lacks.Whole, lacks.Planned)
	}
	for _, topology := range l.Absent {
		s.doubt = fmt.Sprintf("%s was planned, and no window of %s is there", topology, l.Scenario.Name)
	}
	return s
}

// extreme is s as the worst of all windows.
func (s sample) extreme() sample {
	s.worst = true
	return s
}

// newest leaves of each step what the newest records say: one that was measured
// again, on a later engine, replaces what was known of it, also if all of it is void, or
// if it now has too few requests: where none ever had enough, it is not measured. A look
// replaces no more than a look: it could hide a miss.
// Of the records left the one with the most seeds tells, but an extreme is that of all
// of them.
func newest(samples []sample) []sample {
	known := map[string]bool{}
	for _, s := range samples {
		known[s.where] = known[s.where] || s.Known()
	}
	samples = slices.DeleteFunc(slices.Clone(samples), func(s sample) bool {
		return !s.Known() && !s.void && (!s.thin || !known[s.where])
	})
	whole, latest, seeds := map[string]bool{}, map[string]string{}, map[string]int{}
	for _, s := range samples {
		whole[s.where] = whole[s.where] || !s.look
	}
	for _, s := range samples {
		if !s.look || !whole[s.where] {
			latest[s.where] = max(latest[s.where], s.date())
		}
	}
	samples = slices.DeleteFunc(samples, func(s sample) bool { return s.date() < latest[s.where] })
	for _, s := range samples {
		if s.Known() {
			seeds[s.where] = max(seeds[s.where], s.Seeds)
		}
	}
	return slices.DeleteFunc(samples, func(s sample) bool {
		return s.Known() && !s.worst && s.Seeds < seeds[s.where] || !s.Known() && seeds[s.where] > 0
	})
}

// step is where the figure is from, for people.
func (s sample) step() string {
	if s.detail == "" {
		return s.where
	}
	return s.where + ", " + s.detail
}

// date is when the sample's record was made, as its directory's name says.
func (s sample) date() string { return dated.FindString(s.ladder.Source) }

// worst picks the sample farthest on the wrong side, of those that prove a miss if any
// does. Where there is none, ok is false; void says of which step the newest windows
// give no figure, doubt why no figure may meet anything.
func worst(samples []sample, b bound) (far sample, void, doubt string, ok bool) {
	samples = newest(samples)
	told := map[string]bool{} // steps that enough seeds tell of
	for _, s := range samples {
		told[s.where] = told[s.where] || s.proves()
	}
	var known, misses []sample
	for _, s := range samples {
		switch {
		case s.void:
			void = "all windows are void at " + s.where
			continue
		case s.thin:
			void = fmt.Sprintf("too few requests since %s at %s", strings.TrimSuffix(s.date(), "-"), s.where)
			continue
		case s.proves():
			doubt = cmp.Or(doubt, s.doubt)
			if !b.met(s.Estimate) {
				misses = append(misses, s)
			}
		case !told[s.where]:
			doubt = cmp.Or(doubt, s.doubt, s.few()+" at "+s.where)
		}
		known = append(known, s)
	}
	if len(misses) > 0 {
		known = misses
	}
	if len(known) == 0 {
		return sample{}, void, doubt, false
	}
	return slices.MaxFunc(known, func(x, y sample) int {
		if b.least {
			x, y = y, x
		}
		return cmp.Or(cmp.Compare(b.end(x.Estimate), b.end(y.Estimate)), cmp.Compare(x.Figure, y.Figure))
	}), void, doubt, true
}
