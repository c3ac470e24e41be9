// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

func hist(durations ...time.Duration) *bench.Hist {
	h := bench.NewHist()
	for _, d := range durations {
		h.Record(d)
	}
	return h
}

// drawn is n log-normal latencies around centre.
func drawn(r *rand.Rand, n int, centre float64) *bench.Hist {
	h := bench.NewHist()
	for range n {
		h.Record(time.Duration(centre * math.Exp(0.3*r.NormFloat64())))
	}
	return h
}

func TestMergedQuantilesAreThoseOfTheMergedHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	b, all := BySeed{}, bench.NewHist()
	for seed := range uint64(5) {
		for range 2 { // two windows of a seed merge too
			h := drawn(r, 3000, 1e5*float64(1+seed))
			b.Add(seed, h)
			all.Merge(h)
		}
	}
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		if got, want := Quantile(b, q).Figure, float64(all.Quantile(q)); got != want {
			t.Errorf("quantile %v: %v, merged histogram has %v", q, got, want)
		}
	}
	if b.Total() != all.Count() || b.Max() != all.Max() {
		t.Errorf("total %d, max %v; merged histogram has %d, %v", b.Total(), b.Max(), all.Count(), all.Max())
	}
}

func TestKnownAnswer(t *testing.T) {
	// Three seeds of one request each: a resample's median is the middle of
	// three draws, and some resamples are one seed three times.
	b := BySeed{1: CountsOf(hist(100)), 2: CountsOf(hist(200)), 3: CountsOf(hist(400))}
	if e := Quantile(b, 0.5); e.Figure != 200 || e.Low != 100 || e.High != 400 || e.Seeds != 3 {
		t.Errorf("median of 100, 200, 400: %+v", e)
	}
	if e := Mean(Values{1: 1, 2: 2, 3: 6}); e.Figure != 3 || e.Low != 1 || e.High != 6 {
		t.Errorf("mean of 1, 2, 6: %+v", e)
	}
	// Sums, not means of ratios: (10+90)/(100+100), though the ratios are .1 and .9.
	if e := Ratio(Values{1: 100, 2: 100}, Values{1: 10, 2: 90, 9: 7}); e.Figure != 0.5 || e.Low != 0.1 || e.High != 0.9 || e.Seeds != 2 {
		t.Errorf("ratio of sums: %+v", e)
	}
}

func TestPairsCancelWhatASeedDoesToBoth(t *testing.T) {
	a, b := BySeed{}, BySeed{}
	for seed := range uint64(8) {
		shift := time.Duration(1+seed) * 100 * time.Microsecond
		a.Add(seed, hist(shift))
		b.Add(seed, hist(2*shift))
	}
	b.Add(99, hist(time.Second)) // without a partner it is left out
	e := QuantileRatio(a, b, 0.99)
	if e.Seeds != 8 || e.Low < 1.99 || e.High > 2.01 {
		t.Errorf("each seed doubles, so every resample does: %+v", e)
	}
	if e := QuantileRatio(a, BySeed{99: b[99]}, 0.99); e.Known() {
		t.Errorf("no common seed, yet %+v", e)
	}
}

func TestOneSeedGivesAFigureWithoutInterval(t *testing.T) {
	e := Quantile(BySeed{7: CountsOf(hist(100))}, 0.5)
	if e.Figure != 100 || e.HasInterval() || e.Low != 100 || e.High != 100 || e.Excludes(1) {
		t.Errorf("%+v", e)
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var hists [8][3]*bench.Hist
	for seed := range hists {
		for i := range hists[seed] {
			hists[seed][i] = drawn(r, 500, 1e5*(1+r.Float64()))
		}
	}
	in := func(order []int) Estimate {
		a, b := BySeed{}, BySeed{}
		for _, i := range order {
			seed, part := i%8, i/8
			a.Add(uint64(seed), hists[seed][part])
			b.Add(uint64(seed), hists[(seed+1)%8][part])
		}
		return QuantileRatio(a, b, 0.99)
	}
	order := make([]int, 24)
	for i := range order {
		order[i] = i
	}
	want := in(order)
	for range 3 {
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		if got := in(order); got != want {
			t.Errorf("order %v gives %+v, not %+v", order, got, want)
		}
	}
}

// The truth is known: both arms draw from distributions whose quantiles differ
// by a factor, and seeds shift both arms alike and each a little on its own.
func TestIntervalsCoverTheTruth(t *testing.T) {
	const campaigns, seeds, truth = 200, 8, 1.3
	r := rand.New(rand.NewPCG(7, 8))
	covered, excluded := 0, 0
	for range campaigns {
		a, b := BySeed{}, BySeed{}
		for seed := range uint64(seeds) {
			both := math.Exp(0.2 * r.NormFloat64())
			a.Add(seed, drawn(r, 400, 1e5*both*math.Exp(0.1*r.NormFloat64())))
			b.Add(seed, drawn(r, 400, truth*1e5*both*math.Exp(0.1*r.NormFloat64())))
		}
		e := QuantileRatio(a, b, 0.9)
		if e.Low <= truth && truth <= e.High {
			covered++
		}
		if e.Excludes(1) {
			excluded++
		}
	}
	// 95 % are meant; two hundred campaigns of eight seeds may miss some more.
	if share := float64(covered) / campaigns; share < 0.90 {
		t.Errorf("%.1f %% of the intervals hold the truth", 100*share)
	}
	// An interval that is wide enough always would prove nothing.
	if share := float64(excluded) / campaigns; share < 0.95 {
		t.Errorf("only %.1f %% of the intervals tell a factor of %g from 1", 100*share, truth)
	}
}

func TestTailIsWidenedAsStudentSays(t *testing.T) {
	for n, want := range map[int]float64{2: 0, 3: 0, 8: 0.00573, 1000: 0.025} {
		if got := tail(n); math.Abs(got-want) > 0.0003 {
			t.Errorf("tail(%d) = %v, want %v", n, got, want)
		}
	}
	// From the tables.
	for freedom, want := range map[int]float64{1: 12.706, 2: 4.303, 7: 2.365, 30: 2.042} {
		if got := studentQuantile(0.975, freedom); math.Abs(got-want) > 0.001 {
			t.Errorf("Student's quantile with %d degrees of freedom: %v, want %v", freedom, got, want)
		}
	}
}

// A hundred must lie beyond a p99.9, ten beyond what is less rare.
func TestQuantilesNeedEnoughRequests(t *testing.T) {
	for q, fewest := range map[float64]int64{.999: 100_000, .99: 1000, .95: 200, .5: 20} {
		if Carries(q, fewest-1) || !Carries(q, fewest) {
			t.Errorf("%v needs %d, want %d", q, Fewest(q), fewest)
		}
	}
	if Enough(0.999, 99_999) || !Enough(0.999, 100_000) || !Enough(0.99, 10) {
		t.Error("a target's p99.9 needs what one that is shown does, its p99 an interval alone")
	}
}

func TestBreakDensity(t *testing.T) {
	tails := func(low float64, figures ...float64) []Step {
		var ladder []Step
		for i, f := range figures {
			ladder = append(ladder, Step{[]int{0, 1, 2, 4, 8, 16}[i], Estimate{Figure: f, Low: low * f, High: f / low, Seeds: 8}})
		}
		return ladder
	}
	for name, tc := range map[string]struct {
		ladder []Step
		want   string
	}{
		"holds":                      {tails(1, 100, 110, 120, 150, 180, 199), "> 16"},
		"between two that were run":  {tails(1, 100, 100, 100, 400), "2–4"},
		"nothing between the ends":   {[]Step{{0, Estimate{Figure: 100, Low: 90, High: 110, Seeds: 8}}, {16, Estimate{Figure: 400, Low: 390, High: 420, Seeds: 8}}}, "0–16"},
		"at once":                    {tails(1, 300, 300), "at once"},
		"the end does not tell":      {tails(0.5, 100, 100, 300, 300), "not shown"},
		"a step does not tell":       {tails(0.9, 100, 210, 400), "0–2"},
		"and none held before":       {[]Step{{4, Estimate{Figure: 300, Low: 190, High: 500, Seeds: 8}}, {8, Estimate{Figure: 250, Low: 205, High: 300, Seeds: 8}}}, "≤ 8"},
		"a step, but not the end":    {tails(0.9, 100, 210, 150), "> 2"},
		"nothing measured":           {nil, "–"},
		"nothing measured at a step": {[]Step{{0, Estimate{Figure: 100, Low: 100, High: 100, Seeds: 1}}, {1, None()}, {2, Estimate{Figure: 400, Low: 400, High: 400, Seeds: 1}}}, "0–2"},
	} {
		if got := BreakDensity(tc.ladder, SLO(Estimate{Figure: 100})); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// The binomial distribution's 99 % quantiles at 5 %, from tables.
func TestByChance(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 2: 1, 6: 2, 8: 2, 20: 4, 32: 5, 100: 11} {
		if got := ByChance(n); got != want {
			t.Errorf("of %d intervals chance may be wrong in %d, want %d", n, got, want)
		}
	}
}

func TestPlusLosesNothing(t *testing.T) {
	a, b := Counts{{1, 2}, {5, 1}}, Counts{{0, 1}, {5, 3}, {9, 1}}
	want := Counts{{0, 1}, {1, 2}, {5, 4}, {9, 1}}
	if got := a.Plus(b); !slices.Equal(got, want) || !slices.Equal(b.Plus(a), want) {
		t.Errorf("got %v", got)
	}
	if got := a.Plus(nil); !slices.Equal(got, a) || !slices.Equal(Counts(nil).Plus(a), a) {
		t.Errorf("with nothing: %v", got)
	}
}
