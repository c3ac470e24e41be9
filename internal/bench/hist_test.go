// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"
	"time"
)

func TestHistMergesWithoutLoss(t *testing.T) {
	a, b, both := NewHist(), NewHist(), NewHist()
	for i := range 10_000 {
		d := time.Duration(i*i) * time.Nanosecond
		both.Record(d)
		if i%3 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	a.Merge(b)
	for _, q := range []float64{.5, .9, .99, .999, 1} {
		if a.Quantile(q) != both.Quantile(q) {
			t.Errorf("quantile %v: %v merged, %v at once", q, a.Quantile(q), both.Quantile(q))
		}
	}
	if a.Count() != both.Count() || a.Max() != both.Max() {
		t.Errorf("count %d, max %v", a.Count(), a.Max())
	}
	top := NewHist()
	top.Record(time.Hour)
	if top.Count() != 1 || top.Max() < 100*time.Second {
		t.Errorf("a duration beyond the top: count %d, max %v", top.Count(), top.Max())
	}
}
