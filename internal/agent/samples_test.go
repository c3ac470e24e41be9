// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

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
			v.Limits = append(v.Limits, sched.LimitStats{Cgroup: cgroup, ID: uint64(n + 1)})
		}
		v.paced = pacing{}.with(v.Pods, v.Limits).sums
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

// TestPacedOnlyGrows: a container that ends takes what it was paced along with its
// limit; a counter that fell would be taken for one that began anew, and what is left
// of it for what came since.
func TestPacedOnlyGrows(t *testing.T) {
	limit := func(id uint64, paced time.Duration) sched.LimitStats { return sched.LimitStats{ID: id, Paced: paced} }
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		h := a.Handler()
		expect := func(when, want string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			const name = `temper_limit_paced_seconds_total{namespace="shop",pod="p1"} `
			if got := scrapedOf(h, name); got != name+want && got+want != "" {
				t.Errorf("%s: %q, want %s", when, got, want)
			}
		}
		w.place(1)
		w.tell(ready(pod(1)))
		w.do(func() {
			w.paths = map[uint64]string{101: "/kubepods/pod1", 7: "/kubepods/pod1/a"}
			w.held = []sched.LimitStats{limit(101, 100*time.Second), limit(7, 50*time.Second)}
		})
		expect("of the pod and a container", "150")
		w.do(func() { delete(w.paths, 7) })
		expect("the container is gone", "150")
		w.do(func() { w.held = []sched.LimitStats{limit(101, 101*time.Second)} })
		expect("its limit is, too", "151")
		w.do(func() {
			w.paths[8] = "/kubepods/pod1/b"
			w.held = append(w.held, limit(8, time.Second))
		})
		expect("the next one", "152")
		s := ready(pod(1))
		s.Node.SafeMode = true
		w.tell(s)
		expect("not attached", "")
		w.do(func() { w.held = []sched.LimitStats{limit(101, 3*time.Second)} })
		w.tell(ready(pod(1)))
		expect("attached again", "3")
		w.tell(ready())
		expect("the pod is gone", "")
	})
}

// TestStatusHasWhatTheKernelCounts of each limited cgroup, to be held against what
// Temper does, at the same moment; a scrape before it reads none of that.
func TestStatusHasWhatTheKernelCounts(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.do(func() {
			w.paths = map[uint64]string{101: "/kubepods/pod1"}
			w.held = []sched.LimitStats{{ID: 101, Used: time.Minute}, {ID: 7}}
			w.used = map[string]time.Duration{"/kubepods/pod1": 61 * time.Second}
		})
		w.tell(ready())
		time.Sleep(time.Second)
		h := a.Handler()
		scrapedOf(h, "temper_")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest("GET", "/status", nil))
		var r Report
		if err := json.Unmarshal(answer.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Limits) != 2 || r.Limits[0].KernelUsage != 61*time.Second || r.Limits[1].KernelUsage != 0 {
			t.Errorf("got %+v", r.Limits)
		}
	})
}
