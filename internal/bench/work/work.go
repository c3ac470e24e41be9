// SPDX-License-Identifier: Apache-2.0

// Package work is the primaries that measure themselves: programs whose threads
// wait, compute and wake each other, and note when they ran.
//
// A work program is this same binary, started in a pod. It gets everything
// ready, says so, is told when to begin, and prints one result after the
// window. Within the window it uses no memory that it has not touched before
// and nothing of the Go runtime (see thread), so that under virtual time, where
// an instruction is a nanosecond, what it measures is the kernel's doing.
//
// Every program also says what load it really was: the CPU time it used, the
// arrivals it served and missed, how often its threads slept. A primary that
// did not do what it claims to do makes its window void.
package work

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// The kinds of work.
const (
	KindTimer   = "timer"   // threads that sleep until a moment
	KindEventfd = "eventfd" // threads that others wake
	KindBurst   = "burst"   // threads that compute for a while at random moments
	KindPhases  = "phases"  // threads that all compute, and then all do not
	KindPipe    = "pipe"    // two threads that hand a byte to and fro
	KindGaps    = "gaps"    // threads that compute for ever and note when they did not
)

// The names of Result.Values and Result.Parts.
const (
	// ValueBusy is the CPU time that the measured threads used in the window.
	ValueBusy = bench.ValueBusy
	// ValueClaimed is what their arrivals should have cost: a primary whose
	// busy time is another one did not do what it says.
	ValueClaimed = bench.ValueClaimed
	// ValueElsewhere is the share of wakeups that found the woken thread on
	// another CPU than its waker's.
	ValueElsewhere = "elsewhere_ratio"
	// ValuePerOp is what one operation took, exactly: between the moments of
	// the first and the last.
	ValuePerOp = "ns_per_op"
	// ValueSwitches is how often a thread left its CPU, by itself or not, in an
	// operation: a hand-over without a switch was none.
	ValueSwitches = bench.ValueSwitches
	// ValueMissed is the share of arrivals that found their thread still busy
	// with the one before: nobody was woken for them.
	ValueMissed = "missed_ratio"
	// ValueUnserved is the number of arrivals in the window that nobody had
	// served when the time was over. They count as having waited so long.
	ValueUnserved = "unserved"
	// PartCompletion is from an arrival until its work is done.
	PartCompletion = "completion"
)

// Spec is what one program has to do.
type Spec struct {
	Kind    string  `json:"kind"`
	Threads int     `json:"threads"`
	Rate    float64 `json:"rate_per_s"` // arrivals, all threads together
	Seed    uint64  `json:"seed"`
	// Work is how long a thread computes at each arrival, and the unit in which
	// phases count.
	Work time.Duration `json:"work_ns"`
	// Busy and Idle are the mean lengths of phases.
	Busy time.Duration `json:"busy_ns"`
	Idle time.Duration `json:"idle_ns"`
	// Command is what KindCommand runs, and Ops the number of its operations.
	Command []string `json:"command,omitempty"`
	Ops     uint64   `json:"ops,omitempty"`
	// CPUs are where thread i may run: CPUs[i], or anywhere if there are none.
	CPUs [][]int `json:"cpus,omitempty"`
	// Warmup passes before the window; Tail is done after it, unmeasured.
	Warmup time.Duration `json:"warmup_ns"`
	Window time.Duration `json:"window_ns"`
	Tail   time.Duration `json:"tail_ns"`
}

// Ready says that the program waits for Go.
type Ready struct {
	// Loops is how many rounds a piece of Work takes, as calibrated.
	Loops int64 `json:"loops"`
}

// Go tells when to begin, on CLOCK_MONOTONIC.
type Go struct {
	Begin time.Duration `json:"begin_ns"`
}

// Span returns the measured window's ends for a beginning at begin.
func (s Spec) Span(begin time.Duration) (from, to time.Duration) {
	from = begin + s.Warmup
	return from, from + s.Window
}

// grace is how long after its end a program waits for its threads: a thread
// that nobody let run for so long is reported as lost.
const grace = 10 * time.Second

// Run does what one Spec on in says. It stops the garbage collector for good:
// call it from a process of its own.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	debug.SetGCPercent(-1)
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	var spec Spec
	if err := dec.Decode(&spec); err != nil {
		return fmt.Errorf("read work: %w", err)
	}
	run := measure
	if spec.Kind == KindCommand {
		run = runCommand
	}
	result, err := run(ctx, spec, conversation{dec, enc})
	if err != nil {
		return err
	}
	if err := enc.Encode(result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// Outcome is what a program prints: its result, and its trace where it has one.
type Outcome struct {
	bench.Result
	Trace *Trace `json:"trace,omitempty"`
}

// conversation is with the node that started this program.
type conversation struct {
	in  *json.Decoder
	out *json.Encoder
}

// beginning says ready and returns when to begin.
func (c conversation) beginning(ready Ready) (time.Duration, error) {
	if err := c.out.Encode(ready); err != nil {
		return 0, fmt.Errorf("say ready: %w", err)
	}
	var start Go
	if err := c.in.Decode(&start); err != nil {
		return 0, fmt.Errorf("read beginning: %w", err)
	}
	return start.Begin, nil
}

func runCommand(ctx context.Context, spec Spec, node conversation) (Outcome, error) {
	if err := spec.validateCommand(); err != nil {
		return Outcome{}, err
	}
	begin, err := node.beginning(Ready{})
	if err != nil {
		return Outcome{}, err
	}
	result, err := command(ctx, spec, begin)
	return Outcome{Result: result}, err
}

// measure runs the kinds that are threads of this program.
func measure(ctx context.Context, spec Spec, node conversation) (Outcome, error) {
	var none Outcome
	w, err := newWork(spec)
	if err != nil {
		return none, err
	}
	wait, err := launch(w.threads, w.part)
	if err != nil {
		return none, err
	}
	begin, err := node.beginning(Ready{Loops: w.plan.loops})
	if err != nil {
		return none, err
	}
	w.schedule(begin)
	if err := w.plan.open(len(w.threads)); err != nil {
		return none, err
	}
	if err := await(ctx, begin+spec.Warmup+spec.Window+spec.Tail, wait); err != nil {
		return none, err
	}
	result, err := w.collect()
	if err != nil || spec.Kind != KindRequests {
		return Outcome{Result: result}, err
	}
	trace, err := w.trace()
	return Outcome{result, &trace}, err
}

// await sleeps in one system call until the end and only then lets the runtime
// have a say.
func await(ctx context.Context, end time.Duration, wait func()) error {
	t := &thread{}
	t.sleepUntil(int64(end))
	done := make(chan struct{})
	go func() { wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("wait for threads: not ended %v after the window", grace)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// work is a program in progress.
type work struct {
	spec    Spec
	plan    *plan
	threads []*thread
	part    func(*thread)
	figures func(*bench.Result)
	offsets [][]int64 // of the threads' arrivals, from the beginning
}

// newWork gets memory and threads ready.
func newWork(spec Spec) (*work, error) {
	if spec.Threads < 1 || spec.Window <= 0 {
		return nil, fmt.Errorf("prepare %s: %d threads for %v", spec.Kind, spec.Threads, spec.Window)
	}
	w := &work{spec: spec, plan: &plan{loops: 1, unit: int64(spec.Work)}}
	if spec.Work > 0 {
		w.plan.loops = calibrate(spec.Work)
	}
	for i := range spec.Threads {
		t := &thread{id: i, plan: w.plan}
		if len(spec.CPUs) > 0 {
			if len(spec.CPUs) != spec.Threads {
				return nil, fmt.Errorf("prepare %s: %d CPU lists for %d threads", spec.Kind, len(spec.CPUs), spec.Threads)
			}
			for _, cpu := range spec.CPUs[i] {
				t.cpus.Set(cpu)
			}
		}
		w.threads = append(w.threads, t)
	}
	prepare := map[string]func() error{
		KindTimer: w.timer, KindEventfd: w.eventfd, KindBurst: w.burst, KindPhases: w.phases, KindPipe: w.pipe, KindGaps: w.gaps,
		KindRequests: w.requests,
	}[spec.Kind]
	if prepare == nil {
		return nil, fmt.Errorf("prepare work: unknown kind %q", spec.Kind)
	}
	return w, prepare()
}

// schedule fixes every moment, now that the beginning is known.
func (w *work) schedule(begin time.Duration) {
	from, to := w.spec.Span(begin)
	w.plan.begin, w.plan.from, w.plan.to = int64(begin), int64(from), int64(to)
	w.plan.end = int64(to + w.spec.Tail)
	for i, offsets := range w.offsets {
		for j, o := range offsets {
			w.threads[i].due[j] = int64(begin) + o
		}
	}
}

// total is how long the threads work.
func (s Spec) total() time.Duration { return s.Warmup + s.Window + s.Tail }

// arrivals draws the moments for each thread, with gaps that gap draws, of
// mean 1. They depend on the seed alone.
func (w *work) arrivals(gap func(*rand.Rand) float64) error {
	if w.spec.Rate <= 0 {
		return fmt.Errorf("prepare %s: no rate", w.spec.Kind)
	}
	mean := float64(len(w.threads)) / w.spec.Rate * 1e9
	for i, t := range w.threads {
		r := rand.New(rand.NewPCG(w.spec.Seed, uint64(i)))
		var at []int64
		// The first gap's beginning is drawn as well: threads do not start in step.
		for next := r.Float64() * mean; next < float64(w.spec.total()); next += gap(r) * mean {
			at = append(at, int64(next))
		}
		w.offsets = append(w.offsets, at)
		t.due = make([]int64, len(at))
		t.late, t.done = newSamples(len(at)), newSamples(len(at))
	}
	return nil
}

// collect makes the result of what the threads noted.
func (w *work) collect() (bench.Result, error) {
	r := bench.Result{Parts: map[string]*bench.Hist{}, Values: map[string]float64{}}
	var busy int64
	for _, t := range w.threads {
		if t.failed != 0 {
			return r, fmt.Errorf("run thread %d of %s: %w", t.id, w.spec.Kind, t.failed)
		}
		busy += t.busyTo - t.busyFrom
		r.Ops += uint64(t.ops)
	}
	r.Values[ValueBusy] = float64(busy)
	w.figures(&r)
	return r, nil
}

// waited fills in how late threads ran after each wakeup that was due in the
// window.
func (w *work) waited(r *bench.Result) {
	r.Latency = hist(w.threads, lateness)
	r.Requests = int(r.Latency.Count())
	r.Slowest = slowest(w.threads, lateness)
	if r.Requests == 0 {
		r.Latency = nil
	}
}

func lateness(t *thread) *samples    { return &t.late }
func completions(t *thread) *samples { return &t.done }

// served fills in the arrivals that were due in the window and what became of
// them.
func (w *work) served(r *bench.Result) {
	due, done, served := 0, 0, 0
	for _, t := range w.threads {
		for _, at := range t.due {
			if t.inWindow(at) {
				due++
			}
		}
		for _, d := range t.done.all[:t.done.n] {
			if t.inWindow(d.due) {
				served++
			}
			if t.inWindow(d.due + d.took) {
				done++
			}
		}
	}
	r.Offered = float64(due) / w.spec.Window.Seconds()
	r.Achieved = float64(done) / w.spec.Window.Seconds()
	r.Lost = due - served
	r.Requests += r.Lost
}
