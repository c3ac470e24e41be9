// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// resamples is how often the seeds are drawn anew for an interval.
	resamples = 10_000
	// confidence is the share of campaigns whose interval holds the truth.
	confidence = 0.95
	// beyond is how many requests must lie beyond a quantile, and rareBeyond how many
	// where it is as rare as one in a thousand: there a single stall is ten of them.
	beyond     = 10
	rareBeyond = 100
)

// Estimate is a figure and the interval that repeating the campaign with other
// seeds would be expected to stay in.
type Estimate struct {
	Figure float64 `json:"figure"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	// Seeds is how many seeds, or pairs of them, are behind it. One seed gives
	// no interval: Low and High are then the figure.
	Seeds int `json:"seeds"`
}

// None is the estimate of what was not measured.
func None() Estimate {
	return Estimate{Figure: math.NaN(), Low: math.NaN(), High: math.NaN()}
}

// Known says whether anything was measured.
func (e Estimate) Known() bool { return e.Seeds > 0 && finite(e.Figure) }

// finite is false for what dividing by nothing gives.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// HasInterval says whether Low and High mean something.
func (e Estimate) HasInterval() bool { return e.Known() && e.Seeds > 1 }

// Excludes says whether the interval lies wholly on one side of v. Without an
// interval nothing is excluded.
func (e Estimate) Excludes(v float64) bool { return e.HasInterval() && (e.Low > v || e.High < v) }

// Quantile estimates a quantile of the durations of all seeds together, in
// nanoseconds.
func Quantile(b BySeed, q float64) Estimate {
	seeds := b.Seeds()
	m := merge(b, seeds)
	return estimate(len(seeds), func(times []int) float64 { return m.quantile(q, times) })
}

// Fewest is how many requests carry quantile q.
func Fewest(q float64) int64 {
	most := beyond
	if q >= 0.999 {
		most = rareBeyond
	}
	return int64(math.Round(float64(most) / (1 - q)))
}

// Carries says whether so many requests carry quantile q: others are not shown.
func Carries(q float64, requests int64) bool { return requests >= Fewest(q) }

// Enough says so of a target's figure. Below p99.9 its interval alone judges it, which is
// wide where requests are few.
func Enough(q float64, requests int64) bool { return q < 0.999 || Carries(q, requests) }

// QuantileRatio estimates how many times the quantile of b that of a is, over
// the seeds that both have: seed by seed both are drawn together, so that what
// a seed does to both arms cancels. The percentile interval of a ratio is that
// of its logarithm, read back.
func QuantileRatio(a, b BySeed, q float64) Estimate {
	seeds := paired(a, b)
	ma, mb := merge(a, seeds), merge(b, seeds)
	return estimate(len(seeds), func(times []int) float64 { return mb.quantile(q, times) / ma.quantile(q, times) })
}

// Values is what each seed measured as one number.
type Values map[uint64]float64

// Mean estimates the mean over seeds.
func Mean(v Values) Estimate {
	seeds := slices.Sorted(maps.Keys(v))
	return estimate(len(seeds), func(times []int) float64 { return total(v, seeds, times) / count(times) })
}

// Ratio estimates the sum of b over the sum of a, over the seeds that both
// have, drawn together.
func Ratio(a, b Values) Estimate {
	seeds := paired(a, b)
	return estimate(len(seeds), func(times []int) float64 { return total(b, seeds, times) / total(a, seeds, times) })
}

func total(v Values, seeds []uint64, times []int) float64 {
	sum := 0.0
	for i, seed := range seeds {
		if times[i] > 0 {
			sum += float64(times[i]) * v[seed]
		}
	}
	return sum
}

func count(times []int) float64 {
	n := 0
	for _, t := range times {
		n += t
	}
	return float64(n)
}

// paired lists the seeds that both have, ascending.
func paired[M ~map[uint64]V, V any](a, b M) []uint64 {
	var seeds []uint64
	for seed := range a {
		if _, ok := b[seed]; ok {
			seeds = append(seeds, seed)
		}
	}
	slices.Sort(seeds)
	return seeds
}

// estimate reads a statistic once with every seed taken once, and then with n
// seeds drawn anew from the n for the interval. The drawing always starts from
// the same state: the same records give the same interval, on every machine.
func estimate(n int, of func(times []int) float64) Estimate {
	if n == 0 {
		return None()
	}
	times := make([]int, n)
	for i := range times {
		times[i] = 1
	}
	e := Estimate{Figure: of(times), Seeds: n}
	if e.Low, e.High = e.Figure, e.Figure; n == 1 || !finite(e.Figure) {
		return e
	}
	draw := rand.New(rand.NewPCG(1, 2))
	figures := make([]float64, 0, resamples)
	for range resamples {
		clear(times)
		for range n {
			times[draw.IntN(n)]++
		}
		if f := of(times); finite(f) {
			figures = append(figures, f)
		}
	}
	slices.Sort(figures)
	tail := tail(n)
	e.Low, e.High = at(figures, tail), at(figures, 1-tail)
	return e
}

// at is the order statistic that a share q does not exceed.
func at(sorted []float64, q float64) float64 {
	return sorted[min(max(int(math.Ceil(q*float64(len(sorted))))-1, 0), len(sorted)-1)]
}
