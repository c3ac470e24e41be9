// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// good is a record without a fault.
func good() *Record {
	s := ladder()
	s.Load.Window, s.Load.Pad, s.Points = time.Second, 0, []Point{{Name: "6k", Rate: 6000}}
	latency, lag := NewHist(), NewHist()
	for i := range 6000 {
		latency.Record(time.Duration(80+i%50) * time.Microsecond)
		lag.Record(time.Duration(i%5) * time.Microsecond)
	}
	return &Record{
		Schema: Schema, Campaign: "test", Scenario: s, Arm: Arms()[3], Seed: 1,
		Window: Window{
			Step: s.Steps()[3], IdleBefore: .995, Realtime: time.Second,
			Primary: Result{Offered: 6000, Achieved: 6000, Requests: 6000, Latency: latency, Lag: lag},
			Probe:   &Probe{},
			Ledger:  Ledger{Length: time.Second, CPUs: 4, PodCPUs: 3, Critical: 400 * time.Millisecond, Background: 2500 * time.Millisecond, Instrument: time.Second, System: 60 * time.Millisecond, Idle: 40 * time.Millisecond},
			Sched:   []SchedSample{{State: "enabled", Ops: "temper", EnableSeq: 1}, {At: time.Second, State: "enabled", Ops: "temper", EnableSeq: 1}},
		},
	}
}

func TestJudge(t *testing.T) {
	if v := Judge(good()); !v.Valid {
		t.Fatalf("a clean window is void: %v", v.Reasons)
	}
	for name, tc := range map[string]struct {
		spoil func(*Record)
		want  string
	}{
		"ejected at the end": {func(r *Record) { r.Window.Sched[1].State = "disabled" }, "was the kernel's own"},
		"ejected and back":   {func(r *Record) { r.Window.Sched[1].EnableSeq = 2 }, "enable_seq went from 1 to 2"},
		"another scheduler":  {func(r *Record) { r.Window.Sched[0].Ops = "layered" }, "was layered"},
		"still enabling":     {func(r *Record) { r.Window.Sched[0].State = "enabling" }, `state "enabling"`},
		"temper in eevdf":    {func(r *Record) { r.Arm = Arms()[0] }, "expected the kernel's own"},
		"one sample":         {func(r *Record) { r.Window.Sched = r.Window.Sched[:1] }, "not sampled"},
		"ledger too small":   {func(r *Record) { r.Window.Ledger.Idle = 0 }, "ledger off by -1.00 %"},
		"ledger too large":   {func(r *Record) { r.Window.Ledger.Background += 100 * time.Millisecond }, "ledger off by +2.50 %"},
		"lost request":       {func(r *Record) { r.Window.Primary.Lost = 1 }, "1 requests lost"},
		"wrong answer":       {func(r *Record) { r.Window.Primary.Wrong = 2 }, "2 answered wrongly"},
		"late client":        {func(r *Record) { late(r.Window.Primary.Lag) }, "client was the bottleneck"},
		"waiting client":     {func(r *Record) { r.Window.Primary.RunDelay = 20 * time.Millisecond }, "waited 2.00 %"},
		"too few requests":   {func(r *Record) { r.Window.Primary.Offered = 3000 }, "drew 6000 requests, 3000 a second"},
		"missing latencies":  {func(r *Record) { r.Window.Primary.Latency = NewHist() }, "0 latencies for 6000"},
		"too many requests":  {func(r *Record) { r.Window.Step.Rate = 5000; r.Scenario.Points[0].Rate = 5000 }, "drew 6000 requests"},
		"no latency at all":  {func(r *Record) { r.Window.Primary.Latency = nil }, "reported"},
		"another step":       {func(r *Record) { r.Window.Step.Density = 8 }, "none of the scenario's"},
		"a step too many":    {func(r *Record) { r.Window.Step.Index = 99 }, "none of the scenario's"},
		"clock stood still":  {func(r *Record) { r.Window.Ledger.Length -= 30 * time.Millisecond }, "clock jumped: the window and its pads took 970ms"},
		"clock was set":      {func(r *Record) { r.Window.Realtime += 2 * time.Millisecond }, "by the real-time clock"},
		"samples in disorder": {func(r *Record) {
			r.Window.Sched = append(r.Window.Sched, SchedSample{At: time.Millisecond, State: "enabled", Ops: "temper", EnableSeq: 1})
		}, "a sample at 1ms follows one at 1s"},
		"only those that ask": {func(r *Record) { r.Window.Sched[0].All = new(false) }, "for some threads only"},
		"sampled too late":    {func(r *Record) { r.Window.Sched[0].At = time.Millisecond }, "not the whole window"},
		"sampled too early":   {func(r *Record) { r.Window.Sched[1].At = time.Millisecond }, "not the whole window"},
		"renamed arm":         {func(r *Record) { r.Arm.Name = "temper:landing" }, "not described as one"},
		"unknown arm":         {func(r *Record) { r.Arm.Name = "cfs" }, "unknown arm"},
		"tuned kernel":        {func(r *Record) { r.Machine.Cmdline = "quiet preempt=full" }, "kernel line has preempt=full: true"},
		"idle background":     {func(r *Record) { r.Window.Weights = map[string]int{BestEffort: 0} }, "expected cpu.idle: false"},
		"no probe":            {func(r *Record) { r.Window.Probe = nil }, "probe ran: false, expected under temper: true"},
		"a probe too many":    {func(r *Record) { r.Arm, _ = ParseArm("temper:no-probe") }, "probe ran: true"},
		"a blind probe": {func(r *Record) {
			r.Window.Probe.Counters = map[string]Count{"probe_tasks_missed": {Before: 1, After: 3}}
		}, "went from 1 to 3"},
		"bypassed": {func(r *Record) {
			r.Window.Probe.Counters = map[string]Count{"SCX_EV_BYPASS_ACTIVATE": {Before: 2, After: 4}}
		}, "SCX_EV_BYPASS_ACTIVATE went from 2 to 4"},
		"lazy primary":     {func(r *Record) { r.Window.Primary.Values = map[string]float64{ValueBusy: 4e8, ValueClaimed: 5e8} }, "should have cost 500 ms"},
		"boasting primary": {func(r *Record) { r.Window.Primary.Values = map[string]float64{ValueBusy: 5e8, ValueClaimed: 5e8} }, "the ledger says 400 ms"},
		"no switch":        {func(r *Record) { r.Window.Primary.Values = map[string]float64{ValueSwitches: .5} }, "0.50 switches in a hand-over"},
		"fewer arrivals": {func(r *Record) {
			r.Scenario.Primary.Kind, r.Scenario.Primary.Params, r.Scenario.Instrument = "burst", map[string]float64{"burst_us": 1}, false
			r.Window.Primary.Offered = 5000
		}, "primary drew 5000 arrivals a second"},
		"late reading": {func(r *Record) { r.Window.ReadBy = time.Millisecond }, "before the window ended at 1ms, want 0s"},
		"idle CPUs": {func(r *Record) {
			r.Scenario.Primary.Kind, r.Scenario.Primary.Params, r.Scenario.Instrument = "starvation", map[string]float64{"unit_us": 1}, false
			r.Window.Ledger.Idle, r.Window.Ledger.Background = 240*time.Millisecond, 2300*time.Millisecond
		}, "0.24 CPUs were idle"},
		"busy before": {func(r *Record) { r.Window.IdleBefore = .9 }, "only 90.0 % idle"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			tc.spoil(r)
			v := Judge(r)
			if v.Valid || !slices.ContainsFunc(v.Reasons, func(s string) bool { return strings.Contains(s, tc.want) }) {
				t.Errorf("verdict %+v, want a reason with %q", v, tc.want)
			}
		})
	}
	tuned := good()
	tuned.Arm = Arms()[1]
	tuned.Window.Sched = []SchedSample{{State: "disabled"}, {State: "disabled", At: time.Second}}
	if v := Judge(tuned); v.Valid || len(v.Reasons) != 2 || !strings.Contains(v.Reasons[1], "was not read, expected cpu.idle") {
		t.Errorf("an arm whose weights nobody read: %+v", v)
	}
	tuned.Window.Weights = map[string]int{BestEffort: 0}
	if v := Judge(tuned); v.Valid || len(v.Reasons) != 1 || !strings.Contains(v.Reasons[0], "kernel line has preempt=full: false") {
		t.Errorf("an arm without its kernel line: %+v", v)
	}
	host := good()
	host.Machine.Clock, host.Window.IdleBefore = ClockHost, .93
	if v := Judge(host); !v.Valid {
		t.Errorf("a machine with little work of its own: %v", v.Reasons)
	}
	host.Window.IdleBefore = .8
	if v := Judge(host); v.Valid {
		t.Error("a busy machine was accepted")
	}
	cluster := good()
	cluster.Machine.Cluster, cluster.Window.Probe = &Cluster{Kubelet: "v1.36.3"}, nil
	if v := Judge(cluster); !v.Valid {
		t.Errorf("a cluster's node, which has the agent's own probe: %v", v.Reasons)
	}
	own := good()
	own.Arm, own.Window.Sched = Arm{Name: "exec:scx_x", Exec: &Exec{Program: "scx_x"}}, []SchedSample{{State: "enabled", Ops: "x", EnableSeq: 1}, {State: "enabled", Ops: "x", EnableSeq: 1, At: time.Second}}
	if v := Judge(own); !v.Valid {
		t.Errorf("a user's scheduler: %v", v.Reasons)
	}
	own.Window.Sched[0].Ops, own.Window.Sched[1].Ops = "", ""
	if v := Judge(own); v.Valid {
		t.Error("a user's scheduler that is not there was accepted")
	}
	all := good()
	all.Window.Sched[0].All = new(true)
	if v := Judge(all); !v.Valid {
		t.Errorf("a scheduler of all threads: %v", v.Reasons)
	}
	stock := good()
	stock.Arm = Arms()[0]
	stock.Window.Sched = []SchedSample{{All: new(false)}, {At: time.Second}} // a kernel without sched_ext
	if v := Judge(stock); !v.Valid {
		t.Errorf("a stock window on a kernel without sched_ext is void: %v", v.Reasons)
	}
}

func late(lag *Hist) {
	for range 100 {
		lag.Record(time.Millisecond)
	}
}

// What switching costs a pod at its limit is part of what it used.
func TestWorkAtALimitMayCostMore(t *testing.T) {
	for _, c := range []struct {
		limit         int
		busy, claimed float64
		valid         bool
	}{
		{0, 1.5e9, 1.38e9, false},
		{1500, 1.5e9, 1.38e9, true},
		{1500, 1.38e9, 1.5e9, false}, // more done than was used
	} {
		r := good()
		r.Scenario.Primary.LimitMilliCPU = c.limit
		r.Window.Primary.Values = map[string]float64{ValueBusy: c.busy, ValueClaimed: c.claimed}
		got := true
		for _, reason := range judgeWork(r) {
			got = got && !strings.Contains(reason, "should have cost")
		}
		if got != c.valid {
			t.Errorf("used %.2g, claimed %.2g at a limit of %d: accepted %t", c.busy, c.claimed, c.limit, got)
		}
	}
}
