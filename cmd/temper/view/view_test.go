// SPDX-License-Identifier: Apache-2.0

package view

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

func compareStats(before, after sched.Stats) View {
	return Compare(Reading{Stats: before}, Reading{Stats: after})
}

func TestCompareCountsTheInterval(t *testing.T) {
	r := readings()
	v := compareStats(r[0], r[1])
	if v.Interval != time.Second || v.Lent != 0.25 || v.WorstWait != 12*time.Millisecond {
		t.Errorf("interval %v, lent %v, worst wait %v", v.Interval, v.Lent, v.WorstWait)
	}
	if got := v.Tiers[tier.Critical]; got.CPUs != 0.5 || got.PreemptionsPerSecond != 40 {
		t.Errorf("critical = %+v", got)
	}
	want := map[string]float64{
		"own": 0.5, "lent": 0.25, "idle": 0.25,
		"critical": 0, "system": 0, "standard": 0, "background": 0, "other": 0, "irq": 0,
	}
	if diff := cmp.Diff(want, v.CPUs[0].Share); diff != "" {
		t.Errorf("shares of CPU 0 (-want +got):\n%s", diff)
	}
}

// TestCompareAcrossAttaches has counters that start anew between two readings.
func TestCompareAcrossAttaches(t *testing.T) {
	r := readings()
	r[1].Tiers[0].WakeupDelay = counted(time.Millisecond, 5)
	v := compareStats(r[1], sched.Stats{At: r[1].At + time.Second, CPUs: []sched.CPUTime{{CPU: 0}}})
	if got := v.Tiers[tier.Critical]; got.CPUs != 0 || got.PreemptionsPerSecond != 0 || got.WakeupsPerSecond != 0 {
		t.Errorf("critical = %+v", got)
	}
	if got := compareStats(r[1], r[1]).Tiers[0]; got.CPUs != 0 || got.WakeupsPerSecond != 0 {
		t.Errorf("two readings at once: %+v", got)
	}
}

// counted is a histogram of n equal durations.
func counted(d time.Duration, n uint64) sched.Histogram {
	var h sched.Histogram
	for i := 0; ; i++ {
		h.Counts = append(h.Counts, 0)
		if low, high := sched.BucketBounds(i); low <= d && d < high {
			h.Counts[i] = n
			return h
		}
	}
}

func TestCompareDelays(t *testing.T) {
	before := sched.Stats{}
	before.Tiers[0].WakeupDelay = counted(time.Second, 1000)
	after := sched.Stats{At: 2 * time.Second}
	after.Tiers[0].WakeupDelay = counted(time.Second, 1000)
	after.Tiers[0].WakeupDelay.Merge(counted(40*time.Microsecond, 98))
	after.Tiers[0].WakeupDelay.Merge(counted(3*time.Millisecond, 2))
	got := compareStats(before, after).Tiers[0]
	if got.WakeupsPerSecond != 50 {
		t.Errorf("%v wakeups a second, want 50", got.WakeupsPerSecond)
	}
	// A bucket is an eighth of its value wide.
	if got.P50 < 35*time.Microsecond || got.P50 > 45*time.Microsecond || got.P99 < 2600*time.Microsecond || got.P99 > 3400*time.Microsecond {
		t.Errorf("p50 %v, p99 %v; want about 40µs and 3ms", got.P50, got.P99)
	}
}

func TestCompareOrdersGroups(t *testing.T) {
	group := func(id uint64, t tier.Tier, cpu time.Duration) sched.GroupStats {
		return sched.GroupStats{ID: id, Tier: t, CPU: cpu}
	}
	before := sched.Stats{Groups: []sched.GroupStats{group(2, tier.Critical, time.Hour)}}
	after := sched.Stats{At: time.Second, Groups: []sched.GroupStats{
		group(1, tier.Background, time.Second), group(2, tier.Critical, time.Hour+time.Millisecond), group(3, tier.Critical, time.Second),
	}}
	var ids []uint64
	for _, g := range compareStats(before, after).Groups {
		ids = append(ids, g.ID)
	}
	if diff := cmp.Diff([]uint64{3, 2, 1}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBar(t *testing.T) {
	cases := map[string]struct {
		share map[string]float64
		want  string
	}{
		"halves":      {map[string]float64{"own": 0.5, "idle": 0.5}, strings.Repeat("C", 16) + strings.Repeat(".", 16)},
		"too little":  {map[string]float64{"irq": 0.01, "idle": 0.99}, strings.Repeat(".", 32)},
		"offline":     {nil, strings.Repeat(" ", 32)},
		"rounding up": {map[string]float64{"background": 0.7, "idle": 0.4}, strings.Repeat("b", 22) + strings.Repeat(".", 10)},
	}
	for name, c := range cases {
		if got := (cpuView{Share: c.share}).bar(); got != c.want {
			t.Errorf("%s: [%s], want [%s]", name, got, c.want)
		}
	}
}

func TestTerminalKeepsToTheWindow(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	v := compareStats(readings()[0], readings()[1])
	for id := range 100 {
		v.CPUs = append(v.CPUs, cpuView{CPU: id, Fence: strings.Repeat("/long", 40)})
	}
	screen := &terminal{file: w} // a pipe has no size: 80 by 24
	for range 2 {
		if err := screen.Show(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := screen.Close(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	out := string(text)
	if !strings.HasPrefix(out, enterScreen) || !strings.HasSuffix(out, leaveScreen) || strings.Count(out, enterScreen) != 1 {
		t.Error("the alternate screen is not entered once and left")
	}
	frame := strings.Split(out, toTop)[2]
	lines := strings.Split(frame, clearLine+"\n")
	if n := len(lines) - 1; n > 23 {
		t.Errorf("%d lines in a window of 24", n)
	}
	for _, line := range lines {
		if n := len([]rune(strings.ReplaceAll(line, clearBelow+leaveScreen, ""))); n > 80 {
			t.Errorf("%d columns in a window of 80: %q", n, line)
		}
	}
}

// readings are two snapshots of a busy node of two CPUs, one second apart.
func readings() []sched.Stats {
	before := sched.Stats{At: 10 * time.Second, WaitBound: time.Second, CPUs: []sched.CPUTime{{CPU: 0}, {CPU: 1}}}
	after := before
	after.At += time.Second
	after.CPUs = []sched.CPUTime{{CPU: 0}, {CPU: 1}}
	after.CPUs[0].Buckets[sched.BucketOwn] = 500 * time.Millisecond
	after.CPUs[0].Buckets[sched.BucketLent] = 250 * time.Millisecond
	after.CPUs[0].Buckets[sched.BucketIdle] = 250 * time.Millisecond
	after.CPUs[1].Buckets[sched.BucketBackground] = time.Second
	after.Tiers[0].CPU = 500 * time.Millisecond
	after.Tiers[0].Preemptions = 40
	after.Tiers[0].WorstWait = 120 * time.Microsecond
	after.Tiers[3].CPU = 1250 * time.Millisecond
	after.Tiers[3].Preempted = 40
	after.Tiers[3].WorstWait = 12 * time.Millisecond
	return []sched.Stats{before, after}
}

func TestLineCannotPretend(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"plain":             {"kubepods/pod1 – ü", "kubepods/pod1 – ü"},
		"line ends":         {"a\nb\tc\r", `a\nb\tc\r`},
		"terminal commands": {"\x1b[2J\a\u009b1m", `\x1b[2J\a\u009b1m`},
		"direction":         {"\u202e", `\u202e`},
		"not text":          {"\xff", "\ufffd"},
	}
	for name, c := range cases {
		if got := Line(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	rows := Table("A\tB", func(row func(...any)) { row("one\ttwo\nthree", 4) })
	if len(rows) != 2 || !strings.HasSuffix(rows[1], "  4") {
		t.Errorf("a cell made cells or rows of its own: %q", rows)
	}
}
