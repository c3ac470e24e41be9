// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// Histograms are log-linear: below 8 ns a bucket for each value, above that 8
// to each power of two. bpf/probe_hist.bpf.h fills them.
const (
	histBuckets = int(schedTemperLimitsTEMPER_HIST_BUCKETS)
	histSubBits = 3
)

// BucketBounds returns the durations that bucket i counts: from low to below
// high. The last one counts everything longer as well.
func BucketBounds(i int) (low, high time.Duration) {
	if i < 1<<histSubBits {
		return time.Duration(i), time.Duration(i + 1)
	}
	shift := i>>histSubBits - 1
	low = time.Duration(1<<histSubBits+i&(1<<histSubBits-1)) << shift
	return low, low + 1<<shift
}

// bucketOf is the bucket that counts d: what the BPF side computes.
func bucketOf(d time.Duration) int {
	shift := bits.Len64(uint64(d)) - 1 - histSubBits
	if shift < 0 {
		return int(d)
	}
	return min(shift<<histSubBits+int(uint64(d)>>shift), histBuckets-1)
}

// Count is the number of durations.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Mean is 0 for an empty histogram.
func (h Histogram) Mean() time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	return time.Duration(uint64(h.Sum) / n)
}

// Quantile returns the duration that a share q, in [0,1], did not exceed; 0 for
// an empty histogram.
//
// It is the ⌈q·n⌉-th shortest of n durations. Those in one bucket are taken to
// lie at equal distances in it, so that it errs by less than the bucket's
// width, an eighth of the value. It is never above Max.
func (h Histogram) Quantile(q float64) time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	rank := min(max(uint64(math.Ceil(q*float64(n))), 1), n)
	for i, c := range h.Counts {
		if rank > c {
			rank -= c
			continue
		}
		low, high := BucketBounds(i)
		inside := (float64(rank) - 0.5) / float64(c) * float64(high-low)
		d := low + time.Duration(inside)
		if h.Max > 0 {
			d = min(d, h.Max)
		}
		return d
	}
	return h.Max
}

// Merge adds what other counted.
func (h *Histogram) Merge(other Histogram) {
	if len(h.Counts) < len(other.Counts) {
		h.Counts = append(h.Counts, make([]uint64, len(other.Counts)-len(h.Counts))...)
	}
	for i, c := range other.Counts {
		h.Counts[i] += c
	}
	h.Sum += other.Sum
	h.Max = max(h.Max, other.Max)
}

// Sub returns what was counted since an earlier reading of the same histogram.
// Its Max is exact if it is a new record; else only the bucket of the longest
// duration is known, and Max is that bucket's upper bound.
func (h Histogram) Sub(earlier Histogram) Histogram {
	d := Histogram{Counts: slices.Clone(h.Counts), Sum: h.Sum - earlier.Sum}
	for i := range min(len(d.Counts), len(earlier.Counts)) {
		d.Counts[i] -= min(d.Counts[i], earlier.Counts[i])
	}
	if h.Max > earlier.Max {
		d.Max = h.Max
		return d
	}
	for i, c := range slices.Backward(d.Counts) {
		if c > 0 {
			_, high := BucketBounds(i)
			d.Max = min(high-1, h.Max)
			break
		}
	}
	return d
}
