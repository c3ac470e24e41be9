// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/temper-sched/temper/internal/metric"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// TestSeriesDropped falls as pods go, and is no counter.
func TestSeriesDropped(t *testing.T) {
	if d := metric.SeriesDropped.Desc(); d.Kind != metric.Gauge {
		t.Errorf("%s is a %s", d.Name, d.Kind)
	}
	for pods, want := range map[int]float64{0: 0, maxPodSeries: 0, maxPodSeries + 7: 7} {
		v := &view{}
		for n := range pods {
			cgroup := fmt.Sprint("/kubepods/pod", n)
			v.Pods = append(v.Pods, policy.Pod{Namespace: "shop", Name: fmt.Sprint("p", n), Cgroup: cgroup, ID: uint64(n + 1)})
			v.Limits = append(v.Limits, sched.LimitStats{Cgroup: cgroup})
		}
		samples := v.podSamples()
		at := slices.IndexFunc(samples, func(s metric.Sample) bool { return s.ID == metric.SeriesDropped })
		if at < 0 {
			t.Fatal("it is not served")
		}
		if got := samples[at].Value; got != want {
			t.Errorf("of %d pods %v are dropped, want %v", pods, got, want)
		}
	}
}
