// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"slices"
	"time"
)

// Upper bounds of buckets, in seconds.
var (
	// Delays fit waits for a CPU.
	Delays = []float64{1e-6, 5e-6, 20e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 250e-3, 1}
	// Steps fit what the agent does.
	Steps = []float64{0.5e-3, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 10}
)

// Dist is a distribution of durations.
type Dist struct {
	bounds []float64
	counts []uint64 // by bucket, the last is above all bounds
	sum    float64  // seconds
}

// NewDist returns an empty distribution over buckets with these upper bounds.
func NewDist(bounds []float64) Dist {
	return Dist{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// Observe counts a duration.
func (d *Dist) Observe(v time.Duration) {
	d.Add(v, 1)
	d.Sum(v)
}

// Add counts n durations that are at most as long as this one, and leaves their
// sum to Sum.
func (d *Dist) Add(atMost time.Duration, n uint64) {
	at, _ := slices.BinarySearch(d.bounds, atMost.Seconds())
	d.counts[at] += n
}

// Sum adds to the sum of all durations.
func (d *Dist) Sum(v time.Duration) { d.sum += v.Seconds() }

// Clone returns a copy that does not change any more.
func (d *Dist) Clone() Dist {
	return Dist{bounds: d.bounds, counts: slices.Clone(d.counts), sum: d.sum}
}

// cumulative is what Prometheus wants: to each bound, how many are not above it.
func (d *Dist) cumulative() (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(d.bounds))
	for i, n := range d.counts {
		count += n
		if i < len(d.bounds) {
			buckets[d.bounds[i]] = count
		}
	}
	return count, buckets
}
