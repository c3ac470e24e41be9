// SPDX-License-Identifier: Apache-2.0

// Package invented makes records of windows that never were, for the tests of
// what is made of records. They pass every judge, and say so wherever a reader
// could take them for measured: their commit and their kernel are "invented".
package invented

import (
	"fmt"
	"hash/crc64"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// Shape is what a window is to have measured.
type Shape struct {
	P50, P99   time.Duration // of the latency; none if 0
	Background float64       // CPUs
	Critical   float64
	Inversion  time.Duration // of the whole window, one stretch
	WorstWait  time.Duration
	Ops        uint64
	Achieved   float64 // iterations a second where no client counts
	Values     map[string]float64
	Stopped    time.Duration // with work to do, where a limit was
	Uneven     float64       // by how much the use of a limit differs from span to span
	Pods       []bench.Pod
}

// Campaign is a scenario under arms with seeds; Shape says what each window
// measured.
type Campaign struct {
	Scenario bench.Scenario
	Arms     []string
	Seeds    int
	// Jitter is the standard deviation, as a share, of what a seed does to
	// latencies and background time.
	Jitter float64
	Shape  func(arm string, seed uint64, step bench.Step) Shape
	// Spoil may change a record before it is sealed.
	Spoil func(*bench.Record)
}

// Records makes the campaign's records.
func (c Campaign) Records() ([]*bench.Record, error) {
	arms, err := bench.ParseArms(c.Arms)
	if err != nil {
		return nil, err
	}
	var out []*bench.Record
	for seed := uint64(1); seed <= uint64(c.Seeds); seed++ {
		for _, arm := range arms {
			r := rand.New(rand.NewPCG(seed, crc64.Checksum([]byte(arm.Name), crc64.MakeTable(crc64.ISO))))
			for _, step := range c.Scenario.Steps() {
				rec := c.record(arm, seed, step, math.Exp(c.Jitter*r.NormFloat64()))
				rec.Order = int(seed-1)*len(arms) + slices.IndexFunc(bench.Rotate(arms, int(seed-1)), func(a bench.Arm) bool { return a.Name == arm.Name })
				if c.Spoil != nil {
					c.Spoil(rec)
				}
				if err := rec.Seal(); err != nil {
					return nil, err
				}
				out = append(out, rec)
			}
		}
	}
	return out, nil
}

// Write puts the campaign's records into dir, as a run does.
func (c Campaign) Write(dir string) error {
	records, err := c.Records()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create records: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, bench.RecordFile))
	if err != nil {
		return fmt.Errorf("create records: %w", err)
	}
	for _, rec := range records {
		if err := bench.WriteRecord(f, rec); err != nil {
			_ = f.Close()
			return err
		}
	}
	return f.Close()
}

func (c Campaign) record(arm bench.Arm, seed uint64, step bench.Step, jitter float64) *bench.Record {
	s, shape := c.Scenario, c.Shape(arm.Name, seed, step)
	shape.Background /= jitter
	return &bench.Record{
		Campaign: "invented", Scenario: s, Arm: arm, Seed: seed, Commit: "invented",
		Build: bench.Build{Go: "go1.26"}, Host: bench.Host{CPU: "no CPU at all", CPUs: 2},
		Machine: bench.Machine{
			Kernel: "7.2.13-invented", KernelPackage: "linux-image-invented", Topology: s.Topology,
			Cmdline:  "console=ttyS0 " + strings.Join(arm.Cmdline, " "),
			Emulator: "QEMU 10.0.2", EmulatorArgs: []string{"-accel", "tcg,thread=single", "-seed", strconv.FormatUint(seed, 10)}, Accel: "tcg",
			Clock: bench.ClockPerVCPU, ClockQuantum: 2 * time.Microsecond, PluginSHA256: "invented", Packages: map[string]string{s.Primary.Kind: "1.0-1"},
		},
		Window: window(s, arm, step, shape, jitter),
	}
}

func window(s bench.Scenario, arm bench.Arm, step bench.Step, shape Shape, jitter float64) bench.Window {
	sample := bench.SchedSample{State: "disabled"}
	if arm.Scheduled() {
		sample = bench.SchedSample{State: "enabled", Ops: arm.Ops, EnableSeq: 1}
	}
	after := sample
	after.At = s.Load.Window
	if s.KindOf().Agent && (step.Point == bench.PointUpgrade || step.Point == bench.PointEject) {
		after.EnableSeq++
	}
	weight := 1
	switch {
	case arm.BackgroundIdle:
		weight = 0
	case arm.Inverted:
		weight = 174
	}
	w := bench.Window{
		Step: step, IdleBefore: 1, Realtime: s.Load.Counted(), ReadBy: -s.Load.Pad, Sched: []bench.SchedSample{sample, after},
		Weights: map[string]int{bench.BestEffort: weight, "/kubepods": 300}, Pods: shape.Pods,
		Primary: result(s, step, shape, jitter), Ledger: ledger(s, shape), Limits: limits(s, arm, step, shape),
	}
	if arm.Static {
		w.Cpusets = map[string]string{bench.BestEffort: "0"}
	}
	if !arm.NoProbe {
		w.Probe = &bench.Probe{Tiers: map[string]bench.TierProbe{
			"critical":   {Delay: latencies(200, shape.P50/8, shape.P99/8, jitter), Inversion: shape.Inversion, InversionMax: shape.Inversion, CPUTime: w.Ledger.Critical},
			"background": {Delay: latencies(50, shape.P50, 10*shape.P99, jitter), WorstWait: shape.WorstWait, CPUTime: w.Ledger.Background},
		}}
	}
	return w
}

func result(s bench.Scenario, step bench.Step, shape Shape, jitter float64) bench.Result {
	requests := 1000
	if step.Rate > 0 {
		requests = int(math.Round(step.Rate * s.Load.Window.Seconds()))
	}
	r := bench.Result{Ops: shape.Ops, Values: shape.Values, Achieved: shape.Achieved}
	if r.Achieved == 0 {
		r.Achieved = float64(r.Ops) / s.Load.Window.Seconds()
	}
	if step.Rate > 0 {
		r.Offered = float64(requests) / s.Load.Window.Seconds()
	}
	if shape.P99 == 0 {
		return r
	}
	r.Requests, r.Latency = requests, latencies(requests, shape.P50, shape.P99, jitter)
	switch kind := s.KindOf(); {
	case kind.Tool:
		if step.Rate > 0 {
			r.Achieved = r.Offered
		}
		r.Values = maps.Clone(r.Values)
		if r.Values == nil {
			r.Values = map[string]float64{}
		}
		r.Values[bench.ValueFirst], r.Values[bench.ValueLast] = -1, float64(s.Load.Window)
	case kind.Agent:
		r.Ops, r.Lag = uint64(requests), latencies(requests, time.Microsecond, 2*time.Microsecond, 1)
	case kind.Server:
		r.Achieved, r.Lag = r.Offered, latencies(requests, time.Microsecond, 2*time.Microsecond, 1)
	}
	return r
}

// limits are those of the scenario, in force as the arm has them, and used as
// the shape says: by default all of it, as evenly as could be.
func limits(s bench.Scenario, arm bench.Arm, step bench.Step, shape Shape) []bench.Limit {
	var out []bench.Limit
	length := s.Load.Counted()
	for _, limited := range s.Primary.Limited() {
		last := limited.LimitMilliCPU
		l := bench.Limit{Name: limited.Name, Before: arm.Quota(last), Counters: map[string]bench.Count{}}
		for _, change := range s.Primary.LimitSteps {
			last = change.LimitMilliCPU
			l.Changes = append(l.Changes, bench.LimitChange{From: change.At, To: change.At + 50*time.Microsecond, Quota: arm.Quota(last)})
		}
		l.After = arm.Quota(last)
		used := shape.Critical
		if step.Rate == 0 {
			used = max(used, l.Before.CPUs())
		}
		l.Counters[bench.CountUsage] = bench.Count{After: int64(used * float64(length.Microseconds()))}
		if !arm.Scheduled() && l.Before.Quota > 0 {
			periods := int64(length/l.Before.Period) + 1
			l.Counters[bench.CountPeriods] = bench.Count{After: periods}
			l.Counters[bench.CountThrottled] = bench.Count{After: periods}
		}
		if stopped := shape.Stopped; stopped > 0 {
			l.Stopped = &stopped
		}
		if l.Before.Quota > 0 {
			l.By = bench.UseByStamps
			for _, span := range []time.Duration{bench.ShortSpan, bench.LongSpan} {
				if s.Load.Window >= span {
					l.Uses = append(l.Uses, bench.Use{Span: span, Spans: 10, Min: 1 - shape.Uneven, Max: 1 + shape.Uneven})
				}
			}
		}
		out = append(out, l)
	}
	return out
}

// latencies are n log-normal durations of the median and p99 asked for, without
// any chance in them.
func latencies(n int, p50, p99 time.Duration, jitter float64) *bench.Hist {
	if p50 <= 0 {
		return nil
	}
	h := bench.NewHist()
	spread := math.Log(float64(p99)/float64(p50)) / normal(.99)
	for i := range n {
		h.Record(time.Duration(jitter * float64(p50) * math.Exp(spread*normal((float64(i)+.5)/float64(n)))))
	}
	return h
}

// normal is the quantile of the standard normal distribution.
func normal(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

func ledger(s bench.Scenario, shape Shape) bench.Ledger {
	var sockets, cores, threads int
	if _, err := fmt.Sscanf(s.Topology, "%ds%dc%dt", &sockets, &cores, &threads); err != nil {
		panic(fmt.Sprintf("read topology %s: %v", s.Topology, err))
	}
	length := s.Load.Counted()
	of := func(cpus float64) time.Duration { return time.Duration(cpus * float64(length)) }
	l := bench.Ledger{Length: length, CPUs: sockets * cores * threads, Critical: of(shape.Critical), Background: of(shape.Background)}
	l.PodCPUs = l.CPUs
	if s.Instrument {
		l.PodCPUs--
		l.Instrument = of(.3)
	}
	l.Idle = time.Duration(l.CPUs)*length - l.Critical - l.Background - l.Instrument
	if s.KindOf().Saturates {
		l.System, l.Idle = l.Idle, 0
	}
	return l
}
