// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// What stands for the tail, and what does where a step has too few requests for it.
const (
	rarest = .99
	rare   = .95
)

// tailOf is the quantile that stands for the tail at a point whose step with fewest
// requests has so many. All arms there are held against each other by the same one.
func tailOf(fewest int64) float64 {
	if !stats.Carries(rarest, fewest) && stats.Carries(rare, fewest) {
		return rare
	}
	return rarest
}

// tailName is the quantile's: "p99".
func (p *Point) tailName() string { return fmt.Sprintf("p%.0f", 100*p.Tail) }

// carries says whether so many requests carry a quantile.
func (p *Point) carries(q float64, requests int64) bool {
	return !p.Waits && stats.Carries(q, requests)
}

// quantile estimates one of counts that carry it.
func (p *Point) quantile(counts stats.BySeed, q float64) stats.Estimate {
	if !p.carries(q, counts.Total()) {
		return stats.None()
	}
	return stats.Quantile(counts, q)
}

// tailRatio is how many times base's tail that of c is, where the requests of both
// carry it.
func (p *Point) tailRatio(c, base *ladder.Cell) stats.Estimate {
	if !p.carries(p.Tail, c.Paired(base)) {
		return stats.None()
	}
	return c.TailRatio(base, p.Tail)
}

// notesWaits says whether what a scenario measures are waits of several pods' threads.
func notesWaits(s bench.Scenario) bool { return s.Primary.Kind == "starvation" }

// requestsCaveat says how many requests figures rest on, and which are not given for want
// of more.
func (s *Section) requestsCaveat() string {
	few, most := s.requests()
	if few == 0 {
		return ""
	}
	if notesWaits(s.Scenario) {
		return fmt.Sprintf("A step has %s waits of all seeds. Who waits longer ends fewer, so that no percentile of them is given. The longest is a single one.", between(few, most))
	}
	text := fmt.Sprintf("A step has %s requests of all seeds", between(few, most))
	enough, instead := stats.Fewest(rarest), stats.Fewest(rare)
	switch {
	case few >= enough:
		text += fmt.Sprintf(": p99 rests on about %s of them, the maximum on one.", between(few/100, most/100))
	case most >= enough:
		text += fmt.Sprintf(". No p99 is given of fewer than %s: p95 stands for the tail where a point has a step of fewer, and nothing where it has one of fewer than %s. The maximum rests on one.", rate(float64(enough)), rate(float64(instead)))
	case few >= instead:
		text += fmt.Sprintf(": too few for p99, which would need %s. p95 stands for the tail and rests on about %s of them, the maximum on one.", rate(float64(enough)), between(few/20, most/20))
	default:
		text += fmt.Sprintf(": too few for p99, which would need %s, and for p95, which would need %s of each step. The maximum rests on one.", rate(float64(enough)), rate(float64(instead)))
	}
	if most >= enough && most < stats.Fewest(.999) {
		text += fmt.Sprintf(" No p99.9 is given: it would need %s.", rate(float64(stats.Fewest(.999))))
	}
	return text
}
