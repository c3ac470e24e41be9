// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"iter"
	"time"
)

// Bars yields the durations that were counted and how often each was,
// ascending. A bar's duration is the longest that the histogram's three digits
// cannot tell from it, the same that Quantile returns.
func (h *Hist) Bars() iter.Seq2[time.Duration, int64] {
	return func(yield func(time.Duration, int64) bool) {
		for _, bar := range h.h.Distribution() {
			if bar.Count > 0 && !yield(time.Duration(bar.To), bar.Count) {
				return
			}
		}
	}
}
