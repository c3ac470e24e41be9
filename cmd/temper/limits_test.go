// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// compareLimits is compare for the limits of readings one second apart.
func compareLimits(before, after []sched.LimitStats) []limitView {
	v := view{Interval: time.Second}
	v.limits(reading{limits: before}, reading{limits: after})
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
		if got := limitText(l); got != want {
			t.Errorf("%+v: %s, want %s", l, got, want)
		}
	}
	v := view{LimitsNotHeld: 1}
	if got := strings.Join(v.limitLines(), "\n"); got != "not held, because all slots were taken: 1 CPU limit (docs/limits.md)" {
		t.Error(got)
	}
	if got := (view{}).limitLines(); len(got) > 0 {
		t.Errorf("without limits: %q", got)
	}
}

// kernelSide answers each limit with the error that fails has for its cgroup.
type kernelSide struct {
	set   []string
	fails map[uint64]error
}

func (k *kernelSide) SetLimit(l policy.Limit) error {
	k.set = append(k.set, fmt.Sprintf("%d=%d", l.ID, l.QuotaUs))
	return k.fails[l.ID]
}

func TestFollow(t *testing.T) {
	limits := func(quotas map[uint64]uint64) (out []policy.Limit) {
		for id, quota := range quotas {
			out = append(out, policy.Limit{Cgroup: fmt.Sprint("/", id), ID: id, QuotaUs: quota, PeriodUs: 100_000})
		}
		return out
	}
	busy := errors.New("out of slots")
	var now []policy.Limit
	var listing error
	kernel := &kernelSide{}
	f := follower{
		list: func() ([]policy.Limit, error) { return now, listing }, set: kernel.SetLimit, known: map[uint64]policy.Limit{},
	}
	for _, step := range []struct {
		what    string
		now     map[uint64]uint64
		listing error
		fails   map[uint64]error
		want    []string
		err     error
	}{
		{what: "two limits", now: map[uint64]uint64{1: 1000, 2: 2000}, want: []string{"1=1000", "2=2000"}},
		{what: "nothing new", now: map[uint64]uint64{1: 1000, 2: 2000}},
		{what: "unreadable", listing: unix.EACCES, err: unix.EACCES},
		{what: "a third cannot be set", now: map[uint64]uint64{1: 1000, 2: 2000, 3: 3000}, fails: map[uint64]error{3: busy}, want: []string{"3=3000"}, err: busy},
		{what: "it is tried again, and others are not held up", now: map[uint64]uint64{1: 1500, 2: 2000, 3: 3000}, fails: map[uint64]error{3: busy}, want: []string{"1=1500", "3=3000"}, err: busy},
		{what: "and again", now: map[uint64]uint64{1: 1500, 2: 2000, 3: 3000}, want: []string{"3=3000"}},
		{what: "one is lifted", now: map[uint64]uint64{1: 1500, 3: 3000}, want: []string{"2=0"}},
		{what: "one's cgroup goes", now: map[uint64]uint64{1: 1500}, fails: map[uint64]error{3: unix.ENOENT}, want: []string{"3=0"}},
		{what: "it is forgotten", now: map[uint64]uint64{1: 1500}},
		{what: "lifting fails", fails: map[uint64]error{1: busy}, want: []string{"1=0"}, err: busy},
		{what: "and is tried again", want: []string{"1=0"}},
	} {
		now, listing, kernel.set, kernel.fails = limits(step.now), step.listing, nil, step.fails
		err := f.follow()
		slices.Sort(kernel.set)
		if diff := cmp.Diff(step.want, kernel.set); diff != "" || !errors.Is(err, step.err) {
			t.Errorf("%s: error %v, want %v; told (-want +got):\n%s", step.what, err, step.err, diff)
		}
	}
}
