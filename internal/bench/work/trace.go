// SPDX-License-Identifier: Apache-2.0

package work

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// Trace is what threads noted of when they ran and when they had work, since
// the window's start.
type Trace struct {
	// Use is all threads' CPU time in each millisecond.
	Use []time.Duration `json:"use_ns"`
	// Running is when any of them ran, Wanted when any had work to do: apart
	// and in order.
	Running []Span `json:"running"`
	Wanted  []Span `json:"wanted"`
}

// Span is a stretch of time.
type Span struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// grain is the length that Use counts in.
const grain = time.Millisecond

func newTrace(window time.Duration) Trace { return Trace{Use: make([]time.Duration, window/grain)} }

// charge counts a span in which a thread ran; what lies outside of the window
// is left out.
func (t *Trace) charge(s Span) {
	end := time.Duration(len(t.Use)) * grain
	for at := max(s.From, 0); at < min(s.To, end); {
		next := min(at/grain*grain+grain, s.To)
		t.Use[at/grain] += next - at
		at = next
	}
}

// union joins spans that touch, and cuts what lies outside of the window.
func union(spans []Span, window time.Duration) []Span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	out := []Span{}
	for _, s := range spans {
		s = Span{max(s.From, 0), min(s.To, window)}
		if s.To <= s.From {
			continue
		}
		if n := len(out); n > 0 && s.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// JoinTraces returns the trace of all programs together.
func JoinTraces(traces []Trace) (Trace, error) {
	var out Trace
	for i, t := range traces {
		if i == 0 {
			out = Trace{slices.Clone(t.Use), t.Running, t.Wanted}
			continue
		}
		if len(t.Use) != len(out.Use) {
			return out, fmt.Errorf("join traces: %d ms and %d ms", len(out.Use), len(t.Use))
		}
		window := time.Duration(len(t.Use)) * grain
		for ms, use := range t.Use {
			out.Use[ms] += use
		}
		out.Running = union(slices.Concat(out.Running, t.Running), window)
		out.Wanted = union(slices.Concat(out.Wanted, t.Wanted), window)
	}
	return out, nil
}

// Stopped is the longest time in which there was work and nobody ran.
func (t Trace) Stopped() time.Duration {
	var longest time.Duration
	for _, w := range t.Wanted {
		at := w.From
		for _, r := range t.Running {
			if r.To <= at {
				continue
			}
			if r.From >= w.To {
				break
			}
			longest = max(longest, r.From-at)
			at = max(at, r.To)
		}
		longest = max(longest, w.To-at)
	}
	return longest
}

// Stretch is a part of the window in which one quota was in force.
type Stretch struct {
	Span
	Quota bench.Quota
}

// Stretches are the parts of a window between the changes of a limit, each
// without the time that the change may take.
func Stretches(first bench.Quota, changes []bench.LimitChange, window time.Duration) []Stretch {
	out := []Stretch{{Span{0, window}, first}}
	for _, c := range changes {
		last := &out[len(out)-1]
		last.To = c.From
		out = append(out, Stretch{Span{c.To + bench.LimitSettles, window}, c.Quota})
	}
	return slices.DeleteFunc(out, func(s Stretch) bool { return s.To <= s.From || s.Quota.Quota == 0 })
}

// Uses holds the trace against the quotas, over every span of the two lengths
// that begins with a millisecond and lies in one stretch.
func (t Trace) Uses(stretches []Stretch) []bench.Use {
	sums := make([]time.Duration, len(t.Use)+1)
	for i, use := range t.Use {
		sums[i+1] = sums[i] + use
	}
	var out []bench.Use
	for _, span := range []time.Duration{bench.ShortSpan, bench.LongSpan} {
		u := NewUse(span)
		n := int(span / grain)
		for _, s := range stretches {
			from, to := int((s.From+grain-1)/grain), min(int(s.To/grain), len(t.Use))
			for i := from; i+n <= to; i++ {
				u.Add(float64(sums[i+n]-sums[i]), float64(span)*s.Quota.CPUs())
			}
		}
		if u.Spans > 0 {
			out = append(out, u.Use)
		}
	}
	return out
}

// Use collects the extremes of one length.
type Use struct{ bench.Use }

// NewUse begins with none.
func NewUse(span time.Duration) *Use { return &Use{bench.Use{Span: span}} }

// Add takes one span: what was used, and what the quota allowed.
func (u *Use) Add(used, quota float64) {
	share := used / quota
	if u.Spans == 0 {
		u.Min, u.Max = share, share
	}
	u.Spans, u.Min, u.Max = u.Spans+1, min(u.Min, share), max(u.Max, share)
}
