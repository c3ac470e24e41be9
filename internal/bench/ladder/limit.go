// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Limit is a limited cgroup at a step. Uses and Stopped are the extremes of all
// windows: a limit that was missed once was missed.
type Limit struct {
	Name    string
	Quota   bench.Quota // at the window's start
	Changed bool        // within it
	Uses    map[time.Duration]bench.Use
	By      string
	// Stopped is the longest time with work to do and nobody running; negative
	// where the work cannot say.
	Stopped time.Duration

	throttled stats.Values // of the kernel's periods, those in which it throttled
	periods   stats.Values
}

func (c *Cell) addLimits(w *bench.Window, seed uint64) {
	for _, l := range w.Limits {
		i := slices.IndexFunc(c.Limits, func(m *Limit) bool { return m.Name == l.Name })
		if i < 0 {
			i = len(c.Limits)
			c.Limits = append(c.Limits, &Limit{
				Name: l.Name, Quota: l.Before, Changed: len(l.Changes) > 0, By: l.By, Stopped: -1,
				Uses: map[time.Duration]bench.Use{}, throttled: stats.Values{}, periods: stats.Values{},
			})
		}
		into := c.Limits[i]
		for _, u := range l.Uses {
			if old, ok := into.Uses[u.Span]; ok {
				u.Min, u.Max, u.Spans = min(u.Min, old.Min), max(u.Max, old.Max), u.Spans+old.Spans
			}
			into.Uses[u.Span] = u
		}
		if l.Stopped != nil {
			into.Stopped = max(into.Stopped, *l.Stopped)
		}
		moved := func(name string) float64 { return float64(l.Counters[name].After - l.Counters[name].Before) }
		into.throttled[seed] += moved(bench.CountThrottled)
		into.periods[seed] += moved(bench.CountPeriods)
	}
}

// Limit returns what the cell knows of a limited cgroup; nil for none.
func (c *Cell) Limit(name string) *Limit {
	for _, l := range c.Limits {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// Throttled estimates the share of the kernel's periods in which it stopped the
// cgroup; unknown where the kernel counted none.
func (l *Limit) Throttled() stats.Estimate {
	if len(l.periods) == 0 || !positive(l.periods) {
		return stats.None()
	}
	return stats.Ratio(l.periods, l.throttled)
}
