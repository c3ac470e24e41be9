// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/work"
)

// The node starts its own binary for the work programs: here, this test.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "work" {
		if err := work.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// requireVirtualTime skips a test that takes over the machine it runs on and
// whose figures mean something only on the laboratory's deterministic clock.
func requireVirtualTime(t *testing.T) {
	t.Helper()
	if os.Getenv("TEMPER_GUEST") == "1" && os.Getenv("TEMPER_VIRTUAL_TIME") == "1" {
		return
	}
	if os.Getenv("REQUIRE_ALL") == "1" {
		t.Fatal("needs virtual time: run it by make guest PKG=./internal/bench/node MODE=deterministic")
	}
	t.Skip("needs virtual time: run it by make guest PKG=./internal/bench/node MODE=deterministic")
}

// short is a scenario cut down to one point and a short window.
func short(t *testing.T, name, point string, densities ...int) bench.Scenario {
	t.Helper()
	s, err := scenarios.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	s.Densities, s.Load.Window = densities, 200*time.Millisecond
	if point != "" {
		s.Points = slices.DeleteFunc(s.Points, func(p bench.Point) bool { return p.Name != point })
		s.Primary.Pods = slices.DeleteFunc(s.Primary.Pods, func(p bench.PodSpec) bool { return p.Point != "" && p.Point != point })
	}
	return s
}

// windows runs a scenario under an arm on this guest. Every window must be one
// that the judge lets pass.
func windows(t *testing.T, s bench.Scenario, armName string) []bench.Window {
	t.Helper()
	t.Cleanup(func() { liftLimits(t) })
	arm, err := bench.ParseArm(armName)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Run(t.Context(), Spec{Scenario: s, Arm: arm, Seed: 1, CPUs: runtime.NumCPU()}, &out); err != nil {
		t.Fatal(err)
	}
	var got []bench.Window
	var hello Hello
	for events := json.NewDecoder(&out); ; {
		var e Event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e.Hello != nil {
			hello = *e.Hello
		}
		if e.Window != nil {
			r := &bench.Record{Scenario: s, Arm: arm, Seed: 1, Window: *e.Window, Machine: bench.Machine{Cmdline: hello.Cmdline, Clock: bench.ClockPerVCPU}}
			if v := bench.Judge(r); !v.Valid {
				t.Errorf("%s, %s, step %d is void: %q", s.Name, armName, e.Window.Step.Index, v.Reasons)
			}
			got = append(got, *e.Window)
		}
	}
	if len(got) != len(s.Steps()) {
		t.Fatalf("%d windows of %d", len(got), len(s.Steps()))
	}
	return got
}

// liftLimits takes away the CPU limits that a scenario left: outside tests, its
// guest ends with it.
func liftLimits(t *testing.T) {
	err := filepath.WalkDir(mount+kubepods, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "cpu.max" {
			err = os.WriteFile(path, []byte("max"), 0)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// bad is how many times worse than the arm it is a control for an arm must be
// that was made to look bad.
const bad = 10

func TestInvertedWeightsLookBad(t *testing.T) {
	requireVirtualTime(t)
	for _, tc := range []struct{ scenario, point string }{{"burst", "28%"}, {"wakeup", "timer"}} {
		s := short(t, tc.scenario, tc.point, 4)
		s.Load.Window = time.Second // the probe counts a wait when it ends: in a fifth of that none may have
		fair, inverted := windows(t, s, "eevdf")[0], windows(t, s, "eevdf:inverted")[0]
		a, b := fair.Primary.Latency.Quantile(.9), inverted.Primary.Latency.Quantile(.9)
		t.Logf("%s: p90 %v, inverted %v", tc.scenario, a, b)
		if b < bad*a {
			t.Errorf("%s: p90 %v with critical's weight on background, %v without: the control sees nothing", tc.scenario, b, a)
		}
		if p := inverted.Probe.Tiers["critical"]; p.Inversion < inverted.Ledger.Critical {
			t.Errorf("%s: the probe saw only %v of inversion", tc.scenario, p.Inversion)
		}
	}
}

func TestBurstyLosesThroughputToInvertedWeights(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "bursty-primary", "", 0, 4)
	fair, inverted := windows(t, s, "eevdf"), windows(t, s, "eevdf:inverted")
	alone, beside, outweighed := fair[0].Primary.Ops, fair[1].Primary.Ops, inverted[1].Primary.Ops
	t.Logf("%d units alone, %d beside spinners, %d beside spinners that outweigh it", alone, beside, outweighed)
	// EEVDF gives it from about half of its throughput to all of it, by seed.
	if beside < alone/4 || bad*outweighed > beside {
		t.Errorf("%d units alone, %d beside spinners, %d beside spinners that outweigh it: the control sees nothing", alone, beside, outweighed)
	}
}

// Every batch works, in its own pod, and is gone when its pod's turn is over.
func TestBatchesWorkAndEnd(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "burst", "28%", 4, 0)
	for _, b := range bench.Batches() {
		s.Background = append(s.Background, b.Name)
	}
	for i, w := range windows(t, s, "eevdf") {
		for _, p := range w.Pods {
			t.Logf("step %d: %s %v", i, p.Name, p.CPUTime)
			if p.CPUTime < time.Millisecond {
				t.Errorf("step %d: %s used %v of CPU time", i, p.Name, p.CPUTime)
			}
		}
		if idle := w.Ledger.Background == 0; idle != (i == 1) {
			t.Errorf("step %d: background used %v", i, w.Ledger.Background)
		}
	}
}

// Lazy preemption lets a thread that another CPU woke wait for a tick.
func TestWakeupSeesLazyPreemption(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "wakeup", "eventfd", 0, 4)
	s.Load.Window = time.Second
	w := windows(t, s, "eevdf")
	idle, busy := w[0].Primary.Latency.Quantile(.99), w[1].Primary.Latency.Quantile(.99)
	if idle > 100*time.Microsecond || busy < bad*idle {
		t.Errorf("p99 %v on idle CPUs, %v onto background", idle, busy)
	}
	if share := w[0].Primary.Values[work.ValueElsewhere]; share < .9 {
		t.Errorf("only %.2f of the woken ran on another CPU than their waker", share)
	}
}

func TestPipeTellsSwitchesApart(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "switch-cost", "", 0)
	with, without := windows(t, s, "eevdf"), windows(t, s, "eevdf:no-probe")
	for i, w := range with {
		a, b := w.Primary.Values[work.ValuePerOp], without[i].Primary.Values[work.ValuePerOp]
		t.Logf("%s: %.0f ns, without the probe %.0f ns", w.Step.Point, a, b)
		if w.Probe == nil || without[i].Probe != nil || b >= a {
			t.Errorf("%s: a hand-over takes %.0f ns with the probe, %.0f without", w.Step.Point, a, b)
		}
	}
	if alone, woken := without[0].Primary.Values[work.ValuePerOp], without[1].Primary.Values[work.ValuePerOp]; alone == woken {
		t.Errorf("one CPU and two are told apart by nothing: %.0f ns", alone)
	}
}

func TestWeightsOfPods(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "weights", "2:1", 0)
	s.Load.Window = time.Second
	pods := windows(t, s, "eevdf")[0].Pods
	share := func(name string) float64 {
		i := slices.IndexFunc(pods, func(p bench.Pod) bool { return p.Name == name })
		return pods[i].CPUTime.Seconds()
	}
	// EEVDF is off by a sixth here. By threads it would be 3:8.
	if ratio := share("two-a") / share("two-b"); ratio < 1.5 || ratio > 2.2 {
		t.Errorf("pods of weights 2:1 got %.2f:1: %+v", ratio, pods)
	}
}

func TestStarvationFindsWhoWaits(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "starvation", "", 0)
	s.Load.Window = time.Second
	w := windows(t, s, "eevdf")[0]
	for _, name := range []string{"background", "pinned", "affine"} {
		h := w.Primary.Parts[name]
		if h == nil || h.Max() < 50*time.Millisecond {
			t.Errorf("%s, with weight 1 beside 174, never waited for 50 ms: %+v", name, h)
		}
	}
	if w.Ledger.Standard == 0 || w.Ledger.Critical < 2*w.Ledger.Standard {
		t.Errorf("ledger %+v", w.Ledger)
	}
}

// The cliff that limits are about: the stock kernel stops all threads for the
// rest of a period, a shorter period stops them for less, no limit for nothing.
func TestLimitsStopEveryThread(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "limit-parity", "saturated", 0)
	s.Load.Window = 400 * time.Millisecond
	stopped := func(arm string) time.Duration {
		w := windows(t, s, arm)[0]
		pod, ok := w.LimitOf(bench.PodLimit)
		if !ok || pod.Stopped == nil {
			t.Fatalf("%s: limits %+v", arm, w.Limits)
		}
		t.Logf("%s: stopped for %v, p99 %v, %+v", arm, *pod.Stopped, w.Primary.Latency.Quantile(.99), pod.Uses)
		return *pod.Stopped
	}
	long, brief, none := stopped("eevdf"), stopped("eevdf-10ms"), stopped("eevdf:no-limit")
	if long < 20*time.Millisecond || brief > 15*time.Millisecond || brief < time.Millisecond || none > time.Millisecond {
		t.Errorf("stopped for %v with a period of 100 ms, %v with one of 10 ms, %v without a limit", long, brief, none)
	}
}

func TestLimitsAreNestedAndChanged(t *testing.T) {
	requireVirtualTime(t)
	s := short(t, "limit-nested", "", 0)
	s.Load.Window = 400 * time.Millisecond
	w := windows(t, s, "eevdf-10ms")[0]
	// How the two share what the pod may use is the kernel's to say: small has its
	// limit, and at times less. Above it lies a slice of 5 ms that a CPU still holds.
	for name, want := range map[string]struct{ least, most float64 }{bench.PodLimit: {.75, 1.1}, "small": {.4, 1.2}, "large": {.5, .95}} {
		l, _ := w.LimitOf(name)
		u, ok := l.Use(bench.ShortSpan)
		t.Logf("%s %.3f to %.3f", name, u.Min, u.Max)
		if !ok || u.Max > want.most || u.Min < want.least {
			t.Errorf("%s used %.3f to %.3f of its quota", name, u.Min, u.Max)
		}
	}
	s = short(t, "limit-step", "", 0)
	s.Load.Window = 500 * time.Millisecond
	s.Primary.LimitSteps = []bench.LimitStep{{At: 200 * time.Millisecond, LimitMilliCPU: 500}}
	pod, _ := windows(t, s, "eevdf-10ms")[0].LimitOf(bench.PodLimit)
	u, ok := pod.Use(bench.ShortSpan)
	t.Logf("step %.3f to %.3f", u.Min, u.Max)
	if !ok || len(pod.Changes) != 1 || u.Max > 1.2 || u.Min < .8 {
		t.Errorf("from 1.5 to 0.5 CPUs: %+v", pod)
	}
}

// The last test: what it binds stays bound.
func TestZStaticKeepsThemApart(t *testing.T) {
	requireVirtualTime(t)
	w := windows(t, short(t, "burst", "28%", 8), "static")[0]
	if got := w.Ledger.BackgroundCPUs(); got < 1.9 || got > 2.01 {
		t.Errorf("background got %.2f CPUs of its two: cpusets %v", got, w.Cpusets)
	}
	// Kernel threads are a lower tier too, and wherever one runs several may wait
	// for it: up to a thousandth. Without cpusets it is more than a tenth.
	if p := w.Probe.Tiers["critical"]; p.Inversion > p.CPUTime/100 {
		t.Errorf("critical work waited for %v, but background may not use its CPUs", p.Inversion)
	}
}
