// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// The test binary is its own work program: it would not survive one in process.
const workEnv = "TEMPER_TEST_WORK"

func TestMain(m *testing.M) {
	if os.Getenv(workEnv) == "" {
		os.Exit(m.Run())
	}
	if err := Run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// do runs one program as the node does.
func do(t *testing.T, spec Spec) (bench.Result, error) {
	t.Helper()
	o, err := outcome(t, spec)
	return o.Result, err
}

func outcome(t *testing.T, spec Spec) (Outcome, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), workEnv+"=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GORACE=atexit_sleep_ms=0")
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var result Outcome
	err = converse(in, json.NewDecoder(out), spec, &result)
	if ended := cmd.Wait(); ended != nil {
		return result, fmt.Errorf("%w: %s", ended, said.String())
	}
	return result, err
}

func converse(in io.Writer, out *json.Decoder, spec Spec, result *Outcome) error {
	enc := json.NewEncoder(in)
	var ready Ready
	t := &thread{}
	return errors.Join(
		enc.Encode(spec),
		out.Decode(&ready),
		enc.Encode(Go{Begin: time.Duration(t.now()) + 10*time.Millisecond}),
		out.Decode(result),
	)
}

func must(t *testing.T, spec Spec) bench.Result {
	t.Helper()
	r, err := do(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func base(kind string) Spec {
	return Spec{
		Kind: kind, Threads: 2, Rate: 400, Seed: 1, Work: time.Millisecond,
		Warmup: 20 * time.Millisecond, Window: 200 * time.Millisecond, Tail: 20 * time.Millisecond,
	}
}

func TestTimerCountsEveryWakeup(t *testing.T) {
	spec := base(KindTimer)
	r := must(t, spec)
	due := r.Offered * spec.Window.Seconds()
	missed := r.Values[ValueMissed] * due
	if r.Latency == nil || math.Abs(float64(r.Requests)+missed-due) > .5 || r.Lost != 0 || due < 40 {
		t.Errorf("%d wakeups and %.0f missed of %.0f due, %d lost", r.Requests, missed, due, r.Lost)
	}
	if again := must(t, spec); again.Offered != r.Offered {
		t.Errorf("the same seed drew %v and %v arrivals a second", r.Offered, again.Offered)
	}
}

func TestSeedsDrawDifferentArrivals(t *testing.T) {
	drawn := func(seed uint64) []int64 {
		w := &work{spec: base(KindBurst), plan: &plan{}, threads: []*thread{{plan: &plan{}}, {plan: &plan{}}}}
		w.spec.Seed = seed
		if err := w.arrivals(randomly); err != nil {
			t.Fatal(err)
		}
		return w.offsets[0]
	}
	a, b, other := drawn(1), drawn(1), drawn(2)
	if fmt.Sprint(a) != fmt.Sprint(b) || fmt.Sprint(a) == fmt.Sprint(other) {
		t.Errorf("seed 1 drew %v and %v, seed 2 %v", a, b, other)
	}
}

func TestEventfdWakesAnotherThread(t *testing.T) {
	r := must(t, base(KindEventfd))
	if want := r.Offered * .2; r.Latency == nil || r.Lost != 0 || math.Abs(float64(r.Requests)-want) > .5 || want < 40 {
		t.Errorf("%d wakeups of %.0f sent, %d lost", r.Requests, want, r.Lost)
	}
	if _, ok := r.Values[ValueElsewhere]; !ok {
		t.Errorf("nothing says where the woken ran: %v", r.Values)
	}
}

// A burst that is not as long as it claims is what a void window is made of.
func TestBurstUsesWhatItClaims(t *testing.T) {
	spec := base(KindBurst)
	spec.Rate = 200
	r := must(t, spec)
	busy, claimed := r.Values[ValueBusy], r.Values[ValueClaimed]
	if r.Ops < 10 || math.Abs(busy/claimed-1) > .3 {
		t.Errorf("%d bursts claim %.1f ms and used %.1f ms", r.Ops, claimed/1e6, busy/1e6)
	}
	if done := r.Parts[PartCompletion]; done == nil || done.Quantile(.01) < spec.Work*9/10 {
		t.Errorf("completions %+v of bursts of %v", done, spec.Work)
	}
}

func TestPhasesCountUnits(t *testing.T) {
	spec := base(KindPhases)
	spec.Busy, spec.Idle, spec.Work = 4*time.Millisecond, 6*time.Millisecond, 50*time.Microsecond
	r := must(t, spec)
	if share := r.Values[ValuePhases]; share < .2 || share > .6 || r.Ops == 0 {
		t.Errorf("busy for %.2f of the window, %d units", share, r.Ops)
	}
	// Threads cannot have done more than there was time for.
	if most := float64(spec.Threads) * r.Values[ValuePhases] * float64(spec.Window) / float64(spec.Work); float64(r.Ops) > 1.1*most {
		t.Errorf("%d units where %.0f fit", r.Ops, most)
	}
}

func TestPipeOnOneCPUSwitchesEachTime(t *testing.T) {
	spec := base(KindPipe)
	spec.CPUs = [][]int{{0}, {0}}
	r := must(t, spec)
	if switches := r.Values[ValueSwitches]; r.Ops == 0 || switches < .98 || switches > 1.3 || r.Wrong != 0 || r.Values[ValuePerOp] <= 0 {
		t.Errorf("%d hand-overs, %.3f switches in each, %d wrong, %v", r.Ops, switches, r.Wrong, r.Values)
	}
}

// Two threads on one CPU: each must find that it did not run half of the time.
func TestGapsFindTheOther(t *testing.T) {
	spec := base(KindGaps)
	spec.CPUs, spec.Work, spec.Window = [][]int{{0}, {0}}, 50*time.Microsecond, time.Second
	r := must(t, spec)
	if r.Latency == nil {
		t.Fatal("no gap was found")
	}
	var waited time.Duration
	for top, n := range r.Latency.Bars() {
		waited += top * time.Duration(n)
	}
	if share := waited.Seconds() / (2 * spec.Window).Seconds(); share < .3 || share > 1.2 {
		t.Errorf("waited for %.2f of the window, %d times", share, r.Latency.Count())
	}
}

func TestCommandCountsItsProcesses(t *testing.T) {
	spec := Spec{Kind: KindCommand, Threads: 1, Window: 5 * time.Second, Ops: 1000}
	spec.Command = []string{"/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"}
	r := must(t, spec)
	if r.Ops != 1000 || r.Values[ValuePerOp] != r.Values[ValueBusy]/1000 || r.Values[ValueBusy] < 1e6 || r.Lost != 0 {
		t.Errorf("%+v", r)
	}
	spec.Window = time.Microsecond
	if r := must(t, spec); r.Lost != 1 {
		t.Errorf("a command that outlasts the window: %+v", r)
	}
	spec.Command = []string{"/bin/sh", "-c", "echo no such group; exit 3"}
	if _, err := do(t, spec); err == nil || !strings.Contains(err.Error(), "no such group") {
		t.Errorf("a command that fails: error %v", err)
	}
}

// What nobody served has waited until the end at least: it is not forgotten.
func TestUnservedArrivalsCount(t *testing.T) {
	p := &plan{from: 100, to: 200, end: 250}
	th := &thread{plan: p, due: []int64{50, 110, 150, 220}, late: newSamples(4), done: newSamples(4)}
	th.late.add(50, 5)
	th.done.add(50, 8)
	th.giveUp(1, 300)
	w := &work{spec: Spec{Kind: KindTimer, Window: 100}, plan: p, threads: []*thread{th}}
	w.figures = func(r *bench.Result) { w.waited(r); w.served(r); w.waits(r) }
	r, err := w.collect()
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 2 || r.Lost != 0 || r.Values[ValueUnserved] != 2 || r.Latency.Max() != 190 {
		t.Errorf("%+v, longest %v", r, r.Latency.Max())
	}
}

func TestRefusesWhatCannotBeMeasured(t *testing.T) {
	for name, spoil := range map[string]func(*Spec){
		"unknown kind": func(s *Spec) { s.Kind = "sleep" },
		"0 threads":    func(s *Spec) { s.Threads = 0 },
		"no rate":      func(s *Spec) { s.Rate = 0 },
		"no work":      func(s *Spec) { s.Kind, s.Work = KindBurst, 0 },
		"no unit":      func(s *Spec) { s.Kind, s.Work = KindGaps, 0 },
		"no pairs":     func(s *Spec) { s.Kind, s.Threads = KindEventfd, 3 },
		"want 2":       func(s *Spec) { s.Kind, s.Threads = KindPipe, 3 },
		"1 CPU lists":  func(s *Spec) { s.CPUs = [][]int{{0}} },
		"units of":     func(s *Spec) { s.Kind = KindPhases },
		"no command":   func(s *Spec) { s.Kind = KindCommand },
	} {
		spec := base(KindTimer)
		spoil(&spec)
		if _, err := do(t, spec); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
