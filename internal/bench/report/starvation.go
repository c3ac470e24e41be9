// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench/stats"
	"github.com/temper-sched/temper/internal/tier"
)

// tiersHeadline says by tier what ours takes from whom and gives to whom, beside most
// background. Critical work that saturates a node has no figure of its own: what it gets,
// others do not.
func (s *Section) tiersHeadline() []string {
	p := s.Main
	mine, ok := p.row(ours)
	if !ok || !mine.at(p.Top()).Valid() {
		return nil
	}
	var out []string
	for _, r := range p.Rivals() {
		theirs := r.at(p.Top())
		if r.Name == ours || !theirs.Valid() {
			continue
		}
		lost, won, seeds := byTier(mine.at(p.Top()), theirs)
		for _, side := range []struct {
			word  string
			parts []string
		}{{"loses", lost}, {"wins", won}} {
			said := "nothing that a tier's figures show"
			if len(side.parts) > 0 {
				said = strings.Join(side.parts, "; ")
			}
			out = append(out, fmt.Sprintf("What temper %s against %s beside %s%s: %s.", side.word, r.Name, number(p.Top(), "background "+p.Neighbour), tooFew(seeds), said))
		}
	}
	return out
}

// byTier holds what each tier got and how long it waited against what it did under
// another arm.
func byTier(mine, theirs Cell) (lost, won []string, seeds int) {
	for _, t := range tier.All() {
		name := t.String()
		var worse, better []string
		tell := func(isWorse bool, text string) {
			if isWorse {
				worse = append(worse, text)
			} else {
				better = append(better, text)
			}
		}
		e := mine.TierRatio(theirs.Cell, name)
		seeds = max(seeds, e.Seeds)
		if differs(e) {
			tell(e.Figure < 1, fmt.Sprintf("gets %s CPUs, not %s", with(mine.TierCPUs(name), cpus), with(theirs.TierCPUs(name), cpus)))
		}
		// One wait of all windows has no interval.
		a, b := mine.WorstWait[name], theirs.WorstWait[name]
		if off := float64(a)/float64(b) - 1; a > 0 && b > 0 && math.Abs(off) > claimed {
			tell(off > 0, fmt.Sprintf("waits for up to %s, not %s", micros(float64(a)), micros(float64(b))))
		}
		if len(worse) > 0 {
			lost = append(lost, "tier "+name+" "+list(worse))
		}
		if len(better) > 0 {
			won = append(won, "tier "+name+" "+list(better))
		}
	}
	return lost, won, seeds
}

// differs says whether a ratio is shown not to be 1; of one seed, whether it is far from it.
func differs(e stats.Estimate) bool {
	if e.HasInterval() {
		return e.Excludes(1)
	}
	return e.Known() && math.Abs(e.Figure-1) > claimed
}

// worstWaits is for the scenario that asks for it.
func (s *Section) worstWaits() []string {
	if s.Main == nil || !s.Main.Waits {
		return nil
	}
	var parts []string
	for _, r := range s.Main.Rivals() {
		longest := time.Duration(0)
		for _, c := range r.Cells {
			longest = max(longest, longestNoted(c))
		}
		if longest > 0 {
			parts = append(parts, fmt.Sprintf("%s under %s", micros(float64(longest)), r.Name))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The longest that any thread was runnable and did not run is %s.", list(parts))}
}

// longestNoted is the longest wait that the pods' threads themselves noted or the probe saw,
// which sees all tiers.
func longestNoted(c Cell) time.Duration { return max(c.Latency().Max(), longestWait(c)) }

// Waits shows who waited longest, by tier; empty where no probe saw it.
func (s *Section) Waits() Table {
	t := Table{Title: "Longest waits", Head: []string{"arm", "case", s.Scenario.Neighbour() + "s", "tier", "longest wait", "pods' CPUs"}}
	if !notesWaits(s.Scenario) {
		return t
	}
	for i := range s.Points {
		p := &s.Points[i]
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				for _, tier := range slices.Sorted(maps.Keys(c.WorstWait)) {
					t.Rows = append(t.Rows, []string{r.Name, nameOr(p.Name, none), strconv.Itoa(c.Density), tier, micros(float64(c.WorstWait[tier])), podCPUs(c, tier)})
				}
			}
		}
	}
	return t.dense()
}

// podCPUs lists what the named pods of a tier got.
func podCPUs(c Cell, tier string) string {
	var parts []string
	for _, pod := range c.Pods {
		if pod.Tier == tier && len(parts) < 4 {
			parts = append(parts, pod.Name+" "+cpus(c.PodCPUsOf(pod).Figure))
		}
	}
	if len(parts) == 0 {
		return none
	}
	return list(parts)
}
