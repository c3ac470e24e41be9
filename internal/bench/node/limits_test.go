// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/work"
)

const ms = time.Millisecond

func TestParseQuota(t *testing.T) {
	for _, tc := range []struct {
		limit, burst string
		want         bench.Quota
	}{
		{"150000 100000\n", "0\n", bench.Quota{Quota: 150 * ms, Period: 100 * ms}},
		{"15000 10000\n", "15000\n", bench.Quota{Quota: 15 * ms, Period: 10 * ms, Burst: 15 * ms}},
		{"max 100000\n", "0\n", bench.Quota{Period: 100 * ms}},
	} {
		if got, err := parseQuota(tc.limit, tc.burst); err != nil || got != tc.want {
			t.Errorf("%q: %v, %v", tc.limit, got, err)
		}
	}
	for _, bad := range [][2]string{
		{"", "0"},
		{"150000", "0"},
		{"1 2 3", "0"},
		{"much 100000", "0"},
		{"0 100000", "0"},
		{"-1 100000", "0"},
		{"1 100000", ""},
		{"1 100000", "max"},
		{"9223372036854775807 100000", "0"},
	} {
		if got, err := parseQuota(bad[0], bad[1]); err == nil {
			t.Errorf("%q became %v", bad, got)
		}
	}
}

// Whatever is read as a quota is written as the same quota.
func FuzzParseQuota(f *testing.F) {
	f.Add("150000 100000\n", "0\n")
	f.Add("max 100000\n", "0\n")
	f.Add("max max", "9")
	f.Fuzz(func(t *testing.T, limit, burst string) {
		q, err := parseQuota(limit, burst)
		if err != nil {
			if q != (bench.Quota{}) {
				t.Fatalf("an error and %v", q)
			}
			return
		}
		word := noQuota
		if q.Quota > 0 {
			word = strconv.FormatInt(q.Quota.Microseconds(), 10)
		}
		again, err := parseQuota(word+" "+strconv.FormatInt(q.Period.Microseconds(), 10), strconv.FormatInt(q.Burst.Microseconds(), 10))
		if err != nil || again != q {
			t.Fatalf("%q, %q is %v, again %v, %v", limit, burst, q, again, err)
		}
	})
}

const cpuStat = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 10\nnr_throttled 9\nthrottled_usec 77\nnr_bursts 0\nburst_usec 0\n"

func TestParseCPUStat(t *testing.T) {
	got, err := parseCPUStat(cpuStat)
	if err != nil || got["usage_usec"] != 1500 || got["nr_throttled"] != 9 || len(got) != 8 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "nr_periods 1\n", "usage_usec\n", "usage_usec many\n", cpuStat + "\n"} {
		if _, err := parseCPUStat(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseCPUStat(f *testing.F) {
	f.Add(cpuStat)
	f.Add("usage_usec 1")
	f.Fuzz(func(t *testing.T, text string) {
		stat, err := parseCPUStat(text)
		if _, ok := stat["usage_usec"]; ok != (err == nil) {
			t.Fatalf("%q: %v, %v", text, stat, err)
		}
		// What this program has read before, it still reads the same.
		if usage, err2 := parseUsage(text); err == nil && err2 == nil && strings.Count(text, "usage_usec ") == 1 && int64(usage) != stat["usage_usec"]*int64(time.Microsecond) {
			t.Fatalf("%q: usage is %v and %d", text, usage, stat["usage_usec"])
		}
	})
}

// In a directory that stands for a cgroup: what is written, in which order.
func TestLimitsAreWrittenAsTheKernelTakesThem(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, "c", name) }
	if err := os.Mkdir(filepath.Join(dir, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cpu.max": "max 100000\n", "cpu.max.burst": "150000\n"} {
		if err := os.WriteFile(file(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tr := &tree{root: dir}
	for _, q := range []bench.Quota{
		{Quota: 50 * ms, Period: 100 * ms}, {Quota: 15 * ms, Period: 10 * ms, Burst: 15 * ms}, {Period: 100 * ms},
	} {
		if err := tr.limit("/c", q); err != nil {
			t.Fatal(err)
		}
		if got, err := tr.quota("/c"); err != nil || got != q {
			t.Errorf("%v is in force, %v; want %v", got, err, q)
		}
	}
	if err := tr.limit("/none", bench.Quota{Period: ms}); err == nil {
		t.Error("a cgroup that is not there was limited")
	}
}

func TestPodsAndContainersHaveTheirLimits(t *testing.T) {
	s, err := scenarios.Find("limit-nested")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{spec: Spec{Scenario: s}}
	var got []string
	for _, l := range n.limited() {
		got = append(got, strings.TrimPrefix(l.path, critical)+" "+strconv.Itoa(l.LimitMilliCPU))
	}
	if want := []string{" 1500", "/small 500", "/large 1500"}; !reflect.DeepEqual(got, want) {
		t.Errorf("limited %q, want %q", got, want)
	}
	if got := containers(s.Primary); !reflect.DeepEqual(got, []string{"/small", "/large"}) {
		t.Errorf("containers %q", got)
	}
	programs, err := (&selfMeasured{node: n}).programs(bench.Step{})
	if err != nil || len(programs) != 2 || programs[0].cgroup() != critical+"/small" || programs[1].spec.Threads != 4 || programs[0].spec.Seed == programs[1].spec.Seed {
		t.Errorf("programs %+v, %v", programs, err)
	}
}

// A pod's limit is held against all its containers' use, a container's against
// its own.
func TestEachLimitHasItsOwnTrace(t *testing.T) {
	trace := func(each time.Duration) work.Trace {
		tr := work.Trace{Use: make([]time.Duration, 200), Running: []work.Span{{To: 200 * ms}}, Wanted: []work.Span{{To: 200 * ms}}}
		for i := range tr.Use {
			tr.Use[i] = each
		}
		return tr
	}
	quota := func(q time.Duration) bench.Quota { return bench.Quota{Quota: q, Period: 100 * ms} }
	r := &running{traces: []work.Trace{trace(ms / 2), trace(ms)}, scenario: bench.Scenario{Load: bench.Load{Window: 200 * ms}}}
	limits := []bench.Limit{{Name: bench.PodLimit, Before: quota(150 * ms)}, {Name: "small", Before: quota(50 * ms)}, {Name: "large", Before: quota(200 * ms)}}
	if err := r.limits(limits); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1, 1, .5} {
		u, ok := limits[i].Use(bench.ShortSpan)
		if !ok || math.Abs(u.Max-want) > 1e-9 || limits[i].Stopped == nil || limits[i].By != bench.UseByStamps {
			t.Errorf("%s: %+v, want %.1f of its quota", limits[i].Name, u, want)
		}
	}
}

func TestLimitsAreWhatWasBetweenTwoReadings(t *testing.T) {
	q := bench.Quota{Quota: 150 * ms, Period: 100 * ms}
	c := &counters{limited: []limited{{bench.Limited{Name: "pod"}, "/x"}}}
	before := []limitReading{{q, map[string]int64{"usage_usec": 5, "nr_periods": 1, "user_usec": 7}}}
	after := []limitReading{{q, map[string]int64{"usage_usec": 9, "nr_periods": 4, "user_usec": 8}}}
	got := c.limits(before, after, nil)
	want := []bench.Limit{{Name: "pod", Before: q, After: q, Counters: map[string]bench.Count{"usage_usec": {Before: 5, After: 9}, "nr_periods": {Before: 1, After: 4}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestMomentsAreCarriedOutInOrder(t *testing.T) {
	var got []int
	at := func(i int) moment { return moment{time.Duration(i), func() error { got = append(got, i); return nil }} }
	if err := carryOut(t.Context(), []moment{at(3), at(1), at(2)}); err != nil || !reflect.DeepEqual(got, []int{1, 2, 3}) {
		t.Errorf("%v, %v", got, err)
	}
}
