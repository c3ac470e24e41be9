// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/temper-sched/temper/internal/sched"
)

// compareLimits is compare for the limits of readings one second apart.
func compareLimits(before, after []sched.LimitStats) []limitView {
	v := View{Interval: time.Second}
	v.limits(Reading{Limits: before}, Reading{Limits: after})
	return v.Limits
}

func TestLimitsCountTheInterval(t *testing.T) {
	r := limitReadings(7)
	got := compareLimits(r[0], r[1])[0]
	want := limitView{
		Limit: 1.5, CPUs: 1.49, KernelCPUs: 1.5, WaitsPerSecond: 400, PacedShare: 0.5, PacedPeriods: 6,
		Debt: 250 * time.Microsecond, Total: r[1][0],
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLimitsThatComeAndGo(t *testing.T) {
	used := func(id uint64, used, kernel time.Duration) []sched.LimitStats {
		return []sched.LimitStats{{ID: id, Used: used, KernelUsage: kernel}}
	}
	for name, c := range map[string]struct {
		before, after []sched.LimitStats
		cpus, kernel  float64
	}{
		// What the kernel counted before the limit came is not of this interval.
		"new":                    {nil, used(1, time.Second/2, time.Hour), 0.5, 0},
		"of another attach":      {used(1, time.Hour, time.Hour), used(1, time.Second/2, time.Hour+time.Second), 0.5, 0},
		"its cgroup went":        {used(1, time.Second, time.Hour), used(1, 2*time.Second, 0), 1, 0},
		"nothing used before it": {used(1, 0, 0), used(1, time.Second, time.Second), 1, 1},
	} {
		got := compareLimits(c.before, c.after)
		if len(got) != 1 || got[0].CPUs != c.cpus || got[0].KernelCPUs != c.kernel {
			t.Errorf("%s: %+v; want %v and %v CPUs", name, got, c.cpus, c.kernel)
		}
	}
	if got := compareLimits(used(1, 1, 1), nil); len(got) != 0 {
		t.Errorf("a limit whose cgroup is gone is shown: %v", got)
	}
}

func TestLimitsThatPaceComeFirst(t *testing.T) {
	after := []sched.LimitStats{{ID: 1, Used: time.Second}, {ID: 2}, {ID: 3, Paced: time.Second}, {ID: 4, Paced: 2 * time.Second}}
	var ids []uint64
	for _, l := range compareLimits(nil, after) {
		ids = append(ids, l.Total.ID)
		if l.PacedShare > 1 { // readings are not of one instant
			t.Errorf("paced for %v of the time", l.PacedShare)
		}
	}
	if diff := cmp.Diff([]uint64{3, 4, 1, 2}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLimitText(t *testing.T) {
	for want, l := range map[string]sched.LimitStats{
		"1.50":       {Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond},
		"2.00":       {Quota: 20 * time.Millisecond, Period: 10 * time.Millisecond},
		"0.0010":     {Quota: time.Millisecond, Period: time.Second},
		"1.00+100ms": {Quota: time.Second, Period: time.Second, Burst: 100 * time.Millisecond},
		"lifted":     {Period: time.Microsecond},
	} {
		if got := LimitText(l); got != want {
			t.Errorf("%+v: %s, want %s", l, got, want)
		}
	}
	v := View{LimitsNotHeld: 1}
	if got := strings.Join(v.limitLines(), "\n"); got != "not held, because all slots were taken: 1 CPU limit (docs/limits.md)" {
		t.Error(got)
	}
	if got := (View{}).limitLines(); len(got) > 0 {
		t.Errorf("without limits: %q", got)
	}
}

// limitReadings go with readings: the cgroup of that id, limited to 1.5 CPUs,
// waits for half of the second, and one that is gone had nothing to wait for.
func limitReadings(id uint64) [][]sched.LimitStats {
	before := sched.LimitStats{
		ID: id, Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond, Used: 10 * time.Second, KernelUsage: 11 * time.Second,
		PacedPeriods: 20, Paced: 2 * time.Second, LongestWait: 9 * time.Millisecond, LongestStop: 700 * time.Microsecond, Debt: 3 * time.Millisecond,
	}
	after := before
	after.Used += 1490 * time.Millisecond
	after.KernelUsage += 1500 * time.Millisecond
	after.Paced += 500 * time.Millisecond
	after.PacedPeriods += 6
	after.Waits, after.Waiting = 400, 7
	after.Debt += 250 * time.Microsecond
	gone := sched.LimitStats{ID: 1 << 60, Quota: time.Millisecond, Period: 100 * time.Millisecond, Burst: 20 * time.Millisecond}
	return [][]sched.LimitStats{{before, gone}, {after, gone}}
}
