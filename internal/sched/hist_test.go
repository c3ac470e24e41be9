// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsTile(t *testing.T) {
	next := time.Duration(0)
	for i := range histBuckets {
		low, high := BucketBounds(i)
		if low != next {
			t.Fatalf("bucket %d begins at %d, the one before ends at %d", i, low, next)
		}
		if width := high - low; i >= 8 && width*8 > low {
			t.Errorf("bucket %d is [%d, %d): wider than an eighth of its value", i, low, high)
		}
		for _, d := range []time.Duration{low, (low + high) / 2, high - 1} {
			if got := bucketOf(d); got != i {
				t.Errorf("bucketOf(%d) = %d, want %d", d, got, i)
			}
		}
		next = high
	}
	if next != 1<<40 {
		t.Errorf("the last bucket ends at %d, want %d", next, int64(1)<<40)
	}
	if got := bucketOf(math.MaxInt64); got != histBuckets-1 {
		t.Errorf("bucketOf(longest) = %d, want the last", got)
	}
}

func count(durations ...time.Duration) Histogram {
	h := Histogram{Counts: make([]uint64, histBuckets)}
	for _, d := range durations {
		h.Counts[bucketOf(d)]++
		h.Sum += d
		h.Max = max(h.Max, d)
	}
	return h
}

func TestQuantile(t *testing.T) {
	tests := map[string]struct {
		h    Histogram
		q    float64
		want time.Duration
	}{
		"nothing counted":             {Histogram{}, 0.5, 0},
		"no counts at all, one bound": {count(), 1, 0},
		"exact below 8 ns":            {count(1, 2, 3, 4, 5, 6, 7), 0.5, 4},
		"the least":                   {count(1, 2, 3), 0, 1},
		"the most":                    {count(1, 2, 3), 1, 3},
		"never above the longest":     {count(1024), 0.99, 1024},
		"first of two in its bucket":  {count(1024, 1030, 5000), 0.3, 1024 + 128/4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.h.Quantile(tt.q); got != tt.want {
				t.Errorf("Quantile(%v) = %v, want %v", tt.q, got, tt.want)
			}
		})
	}
}

func TestQuantileIsWithinABucketOfTheSorted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var durations []time.Duration
	for range 10_000 {
		durations = append(durations, time.Duration(math.Exp(random.NormFloat64()*3+12)))
	}
	h := count(durations...)
	slices.Sort(durations)
	for _, q := range []float64{0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
		want := durations[int(math.Ceil(q*float64(len(durations))))-1]
		if got := h.Quantile(q); math.Abs(float64(got-want)) > float64(want)/8+1 {
			t.Errorf("Quantile(%v) = %v, sorted durations say %v", q, got, want)
		}
	}
}

func TestMergeAndSub(t *testing.T) {
	earlier := count(10, 20, 3000)
	later := earlier
	later.Counts = slices.Clone(earlier.Counts)
	later.Merge(count(40, 2000))
	if later.Count() != 5 || later.Sum != 10+20+3000+40+2000 || later.Max != 3000 {
		t.Fatalf("merged: %d durations, sum %d, max %d", later.Count(), later.Sum, later.Max)
	}
	if earlier.Count() != 3 {
		t.Fatalf("merging changed the other histogram: %d durations", earlier.Count())
	}
	between := later.Sub(earlier)
	_, bound := BucketBounds(bucketOf(2000))
	if between.Count() != 2 || between.Sum != 2040 || between.Max != bound-1 {
		t.Errorf("no new record: %d durations, sum %d, max %d, want max %d",
			between.Count(), between.Sum, between.Max, bound-1)
	}
	later.Merge(count(5001))
	if between := later.Sub(earlier); between.Max != 5001 {
		t.Errorf("a new record: max %d, want 5001", between.Max)
	}
	if empty := later.Sub(later); empty.Count() != 0 || empty.Max != 0 || empty.Quantile(0.99) != 0 {
		t.Errorf("nothing between: %+v", empty)
	}
	var zero Histogram
	zero.Merge(later)
	if zero.Count() != later.Count() {
		t.Errorf("merged into nothing: %d durations, want %d", zero.Count(), later.Count())
	}
}
