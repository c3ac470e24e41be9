// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

func TestPodThatNeverCameIsTheSlowest(t *testing.T) {
	result := bench.Result{Latency: bench.NewHist()}
	result.Latency.Record(time.Millisecond)
	now := monotonic()
	e := &planEye{result: &result, from: now - 2*time.Second, waiting: []coming{{made: now - time.Second}}}
	e.giveUp()
	if n, most := result.Latency.Count(), result.Latency.Quantile(1); n != 2 || most < 990*time.Millisecond || len(e.waiting) > 0 {
		t.Errorf("%d pods, the slowest %v, %d still wait", n, most, len(e.waiting))
	}
	if s := result.Slowest; len(s) != 1 || s[0].Due != time.Second || s[0].Latency < time.Second {
		t.Errorf("slowest: %+v", s)
	}
}
