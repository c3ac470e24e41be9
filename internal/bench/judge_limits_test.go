// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const limitFile = `
name: limited
title: requests within a limit
measures: request latency
topology: 1s4c1t
instrument: false
primary:
  kind: requests
  threads: 8
  request_millicpu: 1500
  limit_millicpu: 1500
  params: {request_us: 2000, unit_us: 50}
load: {warmup: 100ms, window: 1s, pad: 20ms}
points: [{name: saturated}, {name: half, rate: 375}]
densities: [0]
arms: [eevdf, eevdf-10ms, eevdf-burst, "eevdf:no-limit", temper]
seeds: 1
`

func TestQuotaIsKubelets(t *testing.T) {
	const ms = time.Millisecond
	for name, want := range map[string]Quota{
		"eevdf":          {Quota: 150 * ms, Period: 100 * ms},
		"temper":         {Quota: 150 * ms, Period: 100 * ms},
		"eevdf-10ms":     {Quota: 15 * ms, Period: 10 * ms},
		"eevdf-burst":    {Quota: 150 * ms, Period: 100 * ms, Burst: 150 * ms},
		"eevdf:no-limit": {Period: 100 * ms},
	} {
		arm, err := ParseArm(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := arm.Quota(1500); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := arm.Quota(0); got != (Quota{Period: 100 * ms}) {
			t.Errorf("%s without a limit: %v", name, got)
		}
	}
	short, _ := ParseArm("eevdf-10ms")
	if got := short.Quota(10); got.Quota != ms {
		t.Errorf("10 millicores in 10 ms: %v, the kernel takes no less than 1ms", got)
	}
}

// limited is a record of a window within limits, without a fault.
func limited(t *testing.T, armName string) *Record {
	t.Helper()
	s, err := ParseScenario("limited.yaml", []byte(limitFile))
	if err != nil {
		t.Fatal(err)
	}
	arm, err := ParseArm(armName)
	if err != nil {
		t.Fatal(err)
	}
	latency := NewHist()
	latency.RecordN(10*time.Millisecond, 750)
	r := &Record{
		Schema: Schema, Campaign: "test", Scenario: s, Arm: arm, Seed: 1,
		Window: Window{
			Step: s.Steps()[0], IdleBefore: 1, Realtime: s.Load.Counted(),
			Primary: Result{Achieved: 750, Requests: 750, Latency: latency, Values: map[string]float64{ValueBusy: 1.5e9, ValueClaimed: 1.5e9}},
			Probe:   &Probe{},
			Ledger:  Ledger{Length: s.Load.Counted(), CPUs: 4, PodCPUs: 4, Critical: 1560 * time.Millisecond, Idle: 2600 * time.Millisecond},
			Sched:   []SchedSample{{State: "disabled"}, {At: time.Second, State: "disabled"}},
		},
	}
	if arm.Scheduled() {
		r.Window.Sched = []SchedSample{{State: "enabled", Ops: "temper"}, {At: time.Second, State: "enabled", Ops: "temper"}}
	}
	stopped := time.Millisecond
	for _, of := range s.Primary.Limited() {
		q := arm.Quota(of.LimitMilliCPU)
		l := Limit{Name: of.Name, Before: q, After: q, Stopped: &stopped, Counters: map[string]Count{CountUsage: {100, 1_560_100}}}
		if q.Quota > 0 {
			l.By, l.Uses = UseByStamps, []Use{{ShortSpan, 900, .98, 1.02}, {LongSpan, 1, 1, 1}}
		}
		if q.Quota > 0 && !arm.Scheduled() {
			l.Counters[CountPeriods], l.Counters[CountThrottled] = Count{5, 5 + int64(s.Load.Counted()/q.Period)}, Count{3, 13}
		}
		r.Window.Limits = append(r.Window.Limits, l)
	}
	return r
}

func TestLimitsInForceAreNoReason(t *testing.T) {
	for _, name := range []string{"eevdf", "eevdf-10ms", "eevdf-burst", "eevdf:no-limit", "temper", "temper:no-limit"} {
		if v := Judge(limited(t, name)); !v.Valid {
			t.Errorf("%s: %v", name, v.Reasons)
		}
	}
}

// A scheduler that does not hold the limit, or gives less, has lost: its window
// counts.
func TestAMissedLimitIsAFigure(t *testing.T) {
	for _, used := range []int64{400_000, 4_000_000} {
		r := limited(t, "temper")
		r.Window.Limits[0].Counters[CountUsage] = Count{0, used}
		r.Window.Limits[0].Uses[0].Max = 3
		if v := Judge(r); !v.Valid {
			t.Errorf("%d µs used: %v", used, v.Reasons)
		}
	}
}

func TestLimitsNotInForceAreVoid(t *testing.T) {
	set := func(name string, before, after int64) func(*Record) {
		return func(r *Record) { r.Window.Limits[0].Counters[name] = Count{before, after} }
	}
	for name, tc := range map[string]struct {
		arm   string
		spoil func(*Record)
		want  string
	}{
		"no limits at all":      {"eevdf", func(r *Record) { r.Window.Limits = nil }, "0 limited cgroups, the scenario has 2"},
		"another cgroup":        {"eevdf", func(r *Record) { r.Window.Limits[1].Name = "x" }, "is that of x"},
		"another quota":         {"temper", func(r *Record) { r.Window.Limits[1].Before.Quota *= 2 }, "limit of ctr before the window was 300ms in 100ms"},
		"taken away":            {"eevdf", func(r *Record) { r.Window.Limits[0].After = Quota{Period: KubeletPeriod} }, "after the window was no limit"},
		"another period":        {"eevdf-10ms", func(r *Record) { r.Window.Limits[0].Before = Quota{150e6, 100e6, 0} }, "eevdf-10ms asks for 15ms in 10ms"},
		"no burst":              {"eevdf-burst", func(r *Record) { r.Window.Limits[0].Before.Burst = 0 }, "burst 150ms"},
		"a change too many":     {"eevdf", func(r *Record) { r.Window.Limits[0].Changes = []LimitChange{{}} }, "changed 1 times"},
		"more than it allows":   {"eevdf", set(CountUsage, 0, 2_000_000), "it was not in force"},
		"no period":             {"eevdf", set(CountPeriods, 5, 5), "counted 0 periods of pod"},
		"did not want it":       {"eevdf", set(CountUsage, 0, 1_000_000), "it did not want it"},
		"throttled without one": {"eevdf:no-limit", set(CountThrottled, 0, 3), "throttled pod 3 times"},
		"throttled under ours":  {"temper", set(CountThrottled, 0, 1), "but under temper it is not the kernel that limits it"},
		"not measured":          {"temper", func(r *Record) { r.Window.Limits[0].By = "" }, "is no way"},
		"no long span":          {"temper", func(r *Record) { r.Window.Limits[0].Uses = r.Window.Limits[0].Uses[:1] }, "not measured over 1s"},
		"uses in disorder":      {"temper", func(r *Record) { r.Window.Limits[0].Uses[0].Min = 2 }, "2.000 to 1.020 of its quota"},
		"nothing begun": {"temper", func(r *Record) {
			r.Window.Primary.Latency, r.Window.Primary.Requests = nil, 0
		}, "nothing was begun"},
		"renamed to another limit": {"eevdf", func(r *Record) { r.Arm.NoLimit = true }, "not described as one"},
	} {
		r := limited(t, tc.arm)
		tc.spoil(r)
		if v := Judge(r); v.Valid || !slices.ContainsFunc(v.Reasons, func(s string) bool { return strings.Contains(s, tc.want) }) {
			t.Errorf("%s: %+v, want a reason with %q", name, v, tc.want)
		}
	}
}

// An open loop below the limit need not use it up, nor be throttled.
func TestARateBelowTheLimitIsValid(t *testing.T) {
	r := limited(t, "eevdf")
	r.Window.Step = r.Scenario.Steps()[1]
	r.Window.Primary.Offered, r.Window.Primary.Achieved = 375, 375
	r.Window.Primary.Latency, r.Window.Primary.Requests = NewHist(), 375
	r.Window.Primary.Latency.RecordN(2*time.Millisecond, 375)
	r.Window.Primary.Values = map[string]float64{ValueBusy: 750e6, ValueClaimed: 750e6}
	r.Window.Ledger.Critical, r.Window.Ledger.Idle = 780*time.Millisecond, 3380*time.Millisecond
	r.Window.Limits[0].Counters[CountUsage], r.Window.Limits[0].Counters[CountPeriods] = Count{0, 780_000}, Count{0, 3}
	if v := Judge(r); !v.Valid {
		t.Error(v.Reasons)
	}
}

func TestLimitChangesMustBeTheScenarios(t *testing.T) {
	const ms = time.Millisecond
	steps := func(r *Record) {
		r.Scenario.Primary.LimitSteps = []LimitStep{{At: 400 * ms, LimitMilliCPU: 500}}
		for i := range r.Window.Limits {
			q := r.Arm.Quota(500)
			r.Window.Limits[i].After, r.Window.Limits[i].Changes = q, []LimitChange{{400 * ms, 401 * ms, q}}
		}
	}
	r := limited(t, "temper")
	steps(r)
	if v := Judge(r); !v.Valid {
		t.Fatal(v.Reasons)
	}
	for name, spoil := range map[string]func(*LimitChange){
		"early":         func(c *LimitChange) { c.From -= ms },
		"late":          func(c *LimitChange) { c.To += 10 * ms },
		"another quota": func(c *LimitChange) { c.Quota.Quota *= 2 },
	} {
		r := limited(t, "temper")
		steps(r)
		spoil(&r.Window.Limits[0].Changes[0])
		if v := Judge(r); v.Valid || !strings.Contains(v.Reasons[0], "was changed to") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestToolsAreNoBottleneck(t *testing.T) {
	good := func() *Record {
		r := limited(t, "eevdf")
		s := &r.Scenario
		s.Instrument, s.Load.Conns = true, 8
		s.Primary.Kind, s.Primary.Params = "postgresql", map[string]float64{"branches": 1, "accounts": 1}
		r.Window.ReadBy = -s.Load.Pad
		r.Window.Ledger.PodCPUs, r.Window.Ledger.Instrument, r.Window.Ledger.Idle = 3, 600*time.Millisecond, 2*time.Second
		r.Window.Primary.Values = map[string]float64{ValueFirst: -1e6, ValueLast: 1.1e9}
		return r
	}
	if v := Judge(good()); !v.Valid {
		t.Fatal(v.Reasons)
	}
	books := good()
	for i := range books.Window.Limits {
		books.Window.Limits[i].By = UseBySamples
	}
	books.Window.Probe.Tiers = map[string]TierProbe{"critical": {CPUTime: 1570 * time.Millisecond}}
	if v := Judge(books); !v.Valid {
		t.Errorf("books that agree: %v", v.Reasons)
	}
	books.Window.Probe.Tiers["critical"] = TierProbe{CPUTime: 2 * time.Second}
	if v := Judge(books); v.Valid || !strings.Contains(v.Reasons[0], "how much of its limit is not known") {
		t.Errorf("books that do not agree: %+v", v)
	}
	for want, spoil := range map[string]func(*Record){
		"it used 87 % of its CPU": func(r *Record) {
			r.Window.Ledger.Instrument, r.Window.Ledger.Idle = 900*time.Millisecond, 1700*time.Millisecond
		},
		"threads waited 12.50 %":        func(r *Record) { r.Window.Primary.RunDelay = time.Second },
		"is not the whole window":       func(r *Record) { r.Window.Primary.Values[ValueLast] = 9e8 },
		"transactions ended from 1ms":   func(r *Record) { r.Window.Primary.Values[ValueFirst] = 1e6 },
		"drew 750 transactions, scenar": func(r *Record) { r.Window.Step = r.Scenario.Steps()[1] },
	} {
		r := good()
		spoil(r)
		if v := Judge(r); v.Valid || !slices.ContainsFunc(v.Reasons, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%+v, want a reason with %q", v, want)
		}
	}
}

func TestLimitsOfAScenarioAreChecked(t *testing.T) {
	for want, change := range map[string][2]string{
		"primary.limit_millicpu: -1":             {"limit_millicpu: 1500", "limit_millicpu: -1"},
		"primary.limit_millicpu: missing":        {"  limit_millicpu: 1500", "  limit_steps: [{at: 1ms, limit_millicpu: 5}]"},
		"primary.containers[1]: name \"a\"":      {"params:", "containers: [{name: a, limit_millicpu: 1, threads: 1}, {name: a, limit_millicpu: 1, threads: 1}]\n  params:"},
		"primary.containers[0]: name \"pod\"":    {"params:", "containers: [{name: pod, limit_millicpu: 1, threads: 1}]\n  params:"},
		"primary.limit_steps[1]: 700 at 100ms":   {"params:", "limit_steps: [{at: 200ms, limit_millicpu: 5}, {at: 100ms, limit_millicpu: 700}]\n  params:"},
		"primary.limit_steps[0]: 0 at 0s":        {"params:", "limit_steps: [{limit_millicpu: 0}]\n  params:"},
		"points[0].clients: 3, but requests has": {"{name: saturated}", "{name: saturated, clients: 3}"},
	} {
		text := strings.Replace(limitFile, change[0], change[1], 1)
		if _, err := ParseScenario("limited.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
