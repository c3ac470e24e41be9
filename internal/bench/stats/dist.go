// SPDX-License-Identifier: Apache-2.0

// Package stats makes figures with intervals of what windows measured.
//
// The unit of replication is the seed, never the request: a thousand slow
// requests of one boot are one accident. What windows of one seed counted is
// merged, figures are read from the merged counts of all seeds, and intervals
// come from drawing the seeds anew. The package reads no files and no records.
package stats

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// Bar is how often one duration was counted.
type Bar struct {
	Duration time.Duration
	Count    int64
}

// Counts is a histogram without its empty bars, ascending: a window's latencies
// in a few kilobytes, where the histogram that recorded them takes hundreds.
type Counts []Bar

// CountsOf returns what h counted; nothing for nil.
func CountsOf(h *bench.Hist) Counts {
	var c Counts
	if h != nil {
		for d, n := range h.Bars() {
			c = append(c, Bar{d, n})
		}
	}
	return c
}

// Plus returns what c and other counted together.
func (c Counts) Plus(other Counts) Counts {
	if len(c) == 0 || len(other) == 0 {
		return slices.Concat(c, other)
	}
	sum := make(Counts, 0, len(c)+len(other))
	for len(c) > 0 && len(other) > 0 {
		switch {
		case c[0].Duration < other[0].Duration:
			sum, c = append(sum, c[0]), c[1:]
		case c[0].Duration > other[0].Duration:
			sum, other = append(sum, other[0]), other[1:]
		default:
			sum = append(sum, Bar{c[0].Duration, c[0].Count + other[0].Count})
			c, other = c[1:], other[1:]
		}
	}
	return append(append(sum, c...), other...)
}

// Total is how many durations were counted.
func (c Counts) Total() int64 {
	var total int64
	for _, bar := range c {
		total += bar.Count
	}
	return total
}

// BySeed is what each seed counted at one step under one arm.
type BySeed map[uint64]Counts

// Add merges what h counted into the seed's counts.
func (b BySeed) Add(seed uint64, h *bench.Hist) {
	if h != nil {
		b[seed] = b[seed].Plus(CountsOf(h))
	}
}

// Total is how many durations all seeds counted.
func (b BySeed) Total() int64 {
	var total int64
	for _, c := range b {
		total += c.Total()
	}
	return total
}

// Max is the longest duration that any seed counted.
func (b BySeed) Max() time.Duration {
	var longest time.Duration
	for _, c := range b {
		if len(c) > 0 {
			longest = max(longest, c[len(c)-1].Duration)
		}
	}
	return longest
}

// Seeds lists the seeds, ascending.
func (b BySeed) Seeds() []uint64 { return slices.Sorted(maps.Keys(b)) }

// merged answers quantiles of any mixture of seeds: for each bar, how much each
// seed counted up to it. A mixture's quantile is then a binary search instead
// of a merge, which makes ten thousand of them cheap.
type merged struct {
	bars   Counts
	upTo   [][]int64 // by seed, by bar
	totals []int64   // by seed
}

// merge prepares the given seeds in their order.
func merge(b BySeed, seeds []uint64) *merged {
	var all Counts
	for _, seed := range seeds {
		all = all.Plus(b[seed])
	}
	m := &merged{bars: all}
	for _, seed := range seeds {
		upTo, total := make([]int64, len(all)), int64(0)
		rest := b[seed]
		for i, bar := range all {
			if len(rest) > 0 && rest[0].Duration == bar.Duration {
				total += rest[0].Count
				rest = rest[1:]
			}
			upTo[i] = total
		}
		m.upTo, m.totals = append(m.upTo, upTo), append(m.totals, total)
	}
	return m
}

// quantile is the duration, in nanoseconds, that a share q of the mixture did
// not exceed, where each seed is taken as often as times says. An empty
// mixture has 0.
func (m *merged) quantile(q float64, times []int) float64 {
	total := m.mixed(times, func(seed int) int64 { return m.totals[seed] })
	if total == 0 {
		return 0
	}
	rank := min(max(int64(q*float64(total)+0.5), 1), total) // as HdrHistogram ranks
	at := sort.Search(len(m.bars), func(i int) bool {
		return m.mixed(times, func(seed int) int64 { return m.upTo[seed][i] }) >= rank
	})
	return float64(m.bars[at].Duration)
}

func (m *merged) mixed(times []int, of func(seed int) int64) int64 {
	var sum int64
	for seed, n := range times {
		if n > 0 {
			sum += int64(n) * of(seed)
		}
	}
	return sum
}
