// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// minClean is how many clean windows must raise no alarm.
const minClean = 200

// TestNoFalseAlarm checks every window of the committed campaigns.
func TestNoFalseAlarm(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "bench", "records", "*", bench.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(file, []byte(`{"schema":1,`)) {
			continue // from before records had digests; nothing can check them
		}
		if r := check(t, file); !r.Sound() {
			t.Errorf("%s: %d findings in %d windows, first: %s", path, len(r.Findings), r.Windows, r.Findings[0])
		}
	}
}

// TestNoFalseAlarmOnAnyScenario checks windows of every scenario under every
// arm and modifier, which no campaign has all of. They are invented, and go
// through the same writer, judge and reader as measured ones.
func TestNoFalseAlarmOnAnyScenario(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	var arms []string
	for _, a := range bench.Arms() {
		arms = append(arms, a.Name)
		for _, m := range bench.Modifiers() {
			if m.Base == "" || m.Base == a.Name {
				arms = append(arms, a.Name+":"+m.Name)
			}
		}
	}
	windows := 0
	for _, s := range all {
		s.Densities, s.Points = s.Densities[:1], s.Points[:min(len(s.Points), 1)]
		s.Primary.Pods = slices.DeleteFunc(s.Primary.Pods, func(p bench.PodSpec) bool { return len(s.Points) > 0 && p.Point != "" && p.Point != s.Points[0].Name })
		c := invented.Campaign{
			Scenario: s, Arms: arms, Seeds: 2, Jitter: .05,
			Shape: func(_ string, seed uint64, step bench.Step) invented.Shape {
				shape := invented.Shape{P50: 50 * time.Microsecond, P99: time.Duration(100+seed) * time.Microsecond, Critical: .2, Background: min(float64(step.Density), .7), Ops: 1000}
				if s.KindOf().Agent {
					shape.Values = invented.AtAgent()
				}
				return shape
			},
			Spoil: func(r *bench.Record) { r.Plan = bench.Plan{Arms: arms, SeedFirst: 1, Seeds: 2} },
		}
		dir := t.TempDir()
		if err := c.Write(dir); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(filepath.Join(dir, bench.RecordFile))
		if err != nil {
			t.Fatal(err)
		}
		r := check(t, file)
		if !r.Sound() || r.Void > 0 {
			t.Errorf("%s: %d void, findings %v", s.Name, r.Void, r.Findings[:min(len(r.Findings), 5)])
		}
		windows += r.Windows
	}
	if windows < minClean {
		t.Errorf("%d clean windows, want at least %d", windows, minClean)
	}
}

// clean is a real run's file: three arms on the memcached ladder.
func clean(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "clean.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func check(t *testing.T, file []byte) Report {
	t.Helper()
	report, err := Check(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// found says whether a finding holds want.
func (r Report) found(want string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return strings.Contains(f.String(), want) })
}

// again writes the file anew after change, as a laboratory would that measured
// so: digests and checksums are right, and so are verdicts unless they are kept.
func again(t *testing.T, file []byte, keepVerdicts bool, change func(records []bench.Record) []bench.Record) []byte {
	t.Helper()
	records, err := bench.ReadRecords(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, r := range change(records) {
		if !keepVerdicts {
			r.Verdict = bench.Judge(&r)
		}
		if err := bench.WriteRecord(&out, &r); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func TestACleanFileIsSound(t *testing.T) {
	if r := check(t, clean(t)); !r.Sound() || r.Windows != 9 || r.Void != 0 {
		t.Errorf("%d windows, %d void, %v", r.Windows, r.Void, r.Findings)
	}
	// Writing it again changes nothing.
	if got := again(t, clean(t), false, func(r []bench.Record) []bench.Record { return r }); !bytes.Equal(got, clean(t)) {
		t.Error("a file that is read and written again is another one")
	}
}

// faults are what may go wrong while a window is measured. Each makes the
// window void, and a file that says it was valid is found out.
var faults = map[string]struct {
	arm    string
	inject func(*bench.Record)
	reason string
}{
	"ejected mid-window": {"temper", func(r *bench.Record) {
		for i := range r.Window.Sched[2:] {
			s := &r.Window.Sched[2+i]
			s.State, s.Ops = "disabled", ""
		}
	}, "was the kernel's own"},
	"ejected and attached again between two samples": {"temper", func(r *bench.Record) {
		for i := range r.Window.Sched[3:] {
			r.Window.Sched[3+i].EnableSeq++
		}
	}, "a scheduler was attached"},
	"never attached": {"temper", func(r *bench.Record) {
		for i := range r.Window.Sched {
			r.Window.Sched[i] = bench.SchedSample{At: r.Window.Sched[i].At, State: "disabled"}
		}
	}, "expected temper"},
	"still enabling":    {"temper", func(r *bench.Record) { r.Window.Sched[0].State = "enabling" }, `state "enabling"`},
	"another scheduler": {"temper", func(r *bench.Record) { r.Window.Sched[1].Ops = "layered" }, "was layered"},
	"temper under eevdf": {"eevdf", func(r *bench.Record) {
		r.Window.Sched[0] = bench.SchedSample{At: r.Window.Sched[0].At, State: "enabled", Ops: "temper", EnableSeq: 1}
	}, "expected the kernel's own"},
	"wrong arm":           {"eevdf", func(r *bench.Record) { *r = as(*r, "temper:no-preempt") }, "expected temper"},
	"wrong kernel line":   {"eevdf-tuned", func(r *bench.Record) { r.Machine.Cmdline = strings.ReplaceAll(r.Machine.Cmdline, "preempt=full", "") }, "kernel line has preempt=full: false"},
	"wrong weights":       {"eevdf-tuned", func(r *bench.Record) { r.Window.Weights[bench.BestEffort] = 1 }, "expected cpu.idle: true"},
	"inverted weights":    {"eevdf", func(r *bench.Record) { r.Window.Weights[bench.BestEffort] = 174 }, "expected critical's: false"},
	"CPUs of their own":   {"eevdf", func(r *bench.Record) { r.Window.Cpusets[bench.BestEffort] = "2" }, "expected CPUs of its own: false"},
	"clock jumped ahead":  {"temper", func(r *bench.Record) { stretch(r, 3*time.Second) }, "clock jumped"},
	"clock stood still":   {"temper", func(r *bench.Record) { stretch(r, -200*time.Millisecond) }, "clock jumped"},
	"clock was set":       {"eevdf", func(r *bench.Record) { r.Window.Realtime += time.Hour }, "by the real-time clock"},
	"samples in disorder": {"eevdf", func(r *bench.Record) { r.Window.Sched[2].At = 0 }, "clock jumped: a sample"},
	"samples missing":     {"eevdf", func(r *bench.Record) { r.Window.Sched = r.Window.Sched[:3] }, "not the whole window"},
	"no samples":          {"eevdf", func(r *bench.Record) { r.Window.Sched = nil }, "not sampled"},
	"CPU time lost":       {"temper", func(r *bench.Record) { r.Window.Ledger.Background -= 50 * time.Millisecond }, "ledger off"},
	"requests lost":       {"temper", func(r *bench.Record) { r.Window.Primary.Lost = 3 }, "3 requests lost"},
	"answers wrong":       {"temper", func(r *bench.Record) { r.Window.Primary.Wrong = 1 }, "1 answered wrongly"},
	"client starved":      {"temper", func(r *bench.Record) { r.Window.Primary.RunDelay = 30 * time.Millisecond }, "waited"},
	"client late":         {"temper", func(r *bench.Record) { r.Window.Primary.Lag.RecordN(time.Millisecond, 1000) }, "client was the bottleneck"},
	"node not quiet":      {"temper", func(r *bench.Record) { r.Window.IdleBefore = .7 }, "only 70.0 % idle"},
	"a limit too many":    {"eevdf", func(r *bench.Record) { r.Window.Limits = []bench.Limit{{Name: bench.PodLimit}} }, "1 limited cgroups, the scenario has 0"},
	"probe not there":     {"temper", func(r *bench.Record) { r.Window.Probe = nil }, "probe ran: false"},
}

// as gives r the description of another arm.
func as(r bench.Record, name string) bench.Record {
	arm, err := bench.ParseArm(name)
	if err != nil {
		panic(err)
	}
	r.Arm = arm
	return r
}

// stretch makes the ledger longer by d, idle all the while.
func stretch(r *bench.Record, d time.Duration) {
	l := &r.Window.Ledger
	l.Length, l.Idle = l.Length+d, l.Idle+d*time.Duration(l.CPUs)
	r.Window.Realtime += d
}

func TestEveryFaultIsFound(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			var id string
			inject := func(records []bench.Record) []bench.Record {
				i := slices.IndexFunc(records, func(r bench.Record) bool { return r.Arm.Name == f.arm && r.Window.Step.Density > 0 })
				f.inject(&records[i])
				id = records[i].ID()
				return records
			}
			// An honest laboratory records it as void.
			honest := check(t, again(t, clean(t), false, inject))
			if honest.Void != 1 || honest.found("verdict") {
				t.Errorf("%d void windows, %v", honest.Void, honest.Findings)
			}
			// A file that says otherwise is found, and nothing else is.
			polluted := check(t, again(t, clean(t), true, inject))
			if !polluted.found(f.reason) || !polluted.found("polluted: its verdict is valid") {
				t.Errorf("no %q in %v", f.reason, polluted.Findings)
			}
			for _, finding := range polluted.Findings {
				if finding.Line > 0 && finding.ID != id {
					t.Errorf("false alarm: %s", finding)
				}
			}
		})
	}
}

// contradictions are what somebody may do who writes every line anew, with its digest,
// its checksum and its verdict.
var contradictions = map[string]struct {
	change func(records []bench.Record)
	want   string
}{
	"a run under another seed": {func(records []bench.Record) {
		for i := range records {
			records[i].Seed, records[i].Plan.SeedFirst = 7, 7
		}
	}, "its guest had seed 1"},
	"a window under another step": {func(records []bench.Record) {
		records[1].Window.Primary = records[0].Window.Primary
	}, "its latencies are those of line 1"},
	"a slow request away": {func(records []bench.Record) {
		records[0].Window.Primary.Requests--
	}, "at the same step with the same seed"},
	"critical's time for background's": {func(records []bench.Record) {
		l := &records[1].Window.Ledger
		l.Critical, l.Background = l.Critical-l.Length/20, l.Background+l.Length/20
	}, "its critical pods used"},
	"no wait": {func(records []bench.Record) {
		tiers := records[0].Window.Probe.Tiers
		critical := tiers["critical"]
		critical.WorstWait = 1
		tiers["critical"] = critical
	}, "nobody longer than 1ns"},
	"no wait, but an inversion": {func(records []bench.Record) {
		tiers := records[0].Window.Probe.Tiers
		critical := tiers["critical"]
		critical.InversionMax = critical.WorstWait + 1
		tiers["critical"] = critical
	}, "an inversion of"},
}

func TestContradictionsAreFound(t *testing.T) {
	for name, c := range contradictions {
		t.Run(name, func(t *testing.T) {
			r := check(t, again(t, clean(t), false, func(records []bench.Record) []bench.Record {
				c.change(records)
				return records
			}))
			if !r.found(c.want) {
				t.Errorf("no %q in %v", c.want, r.Findings)
			}
		})
	}
}

// edits are what somebody may do to a file.
var edits = map[string]struct {
	edit func(lines []string) []string
	want string
}{
	"percentile":            {first(replace(`"p99_ns":\d+`, `"p99_ns":1000`)), "its counts give"},
	"median":                {first(replace(`"p50_ns":\d+`, `"p50_ns":1000`)), "its counts give"},
	"count":                 {first(replace(`"count":\d+`, `"count":7`)), "its counts give"},
	"histogram":             {first(otherHistogram), "its counts give"},
	"histogram and figures": {first(otherLatency), "checksum"},
	"verdict":               {first(replace(`"verdict":{"valid":true}`, `"verdict":{"valid":false,"reasons":["bad luck"]}`)), "polluted: its verdict is void (bad luck), but what it holds gives valid"},
	"ledger":                {first(replace(`"background_ns":\d+`, `"background_ns":1`)), "checksum"},
	"seed":                  {first(replace(`"seed":1`, `"seed":2`)), "checksum"},
	"commit":                {first(replace(`"commit":"[^"]*"`, `"commit":"0000"`)), "checksum"},
	"order":                 {first(replace(`"order":\d+`, `"order":99`)), "checksum"},
	"started":               {first(replace(`"started":"2`, `"started":"1`)), "checksum"},
	"arm's title":           {first(replace(`"title":"EEVDF`, `"title":"CFS`)), "checksum"},
	"digest":                {first(replace(`"digest":"[0-9a-f]{4}`, `"digest":"0000`)), "checksum"},
	"checksum":              {first(replace(`"checksum":"[0-9a-f]{4}`, `"checksum":"0000`)), "checksum"},
	"checksum away":         {first(replace(`,"checksum":"[0-9a-f]*"`, ``)), "checksum"},
	"schema":                {first(replace(`"schema":2`, `"schema":1`)), "schema 1"},
	"new field":             {first(replace(`"seed":1`, `"seed":1,"best":true`)), "unknown field"},
	"spaces":                {first(replace(`"seed":1`, `"seed": 1`)), "checksum"},
	"cut line":              {first(func(s string) string { return s[:len(s)/2] }), "torn"},
	"two in a line":         {func(l []string) []string { return append([]string{l[0] + l[1]}, l[2:]...) }, "torn"},
	"no JSON":               {first(func(string) string { return "oops" }), "torn"},
	"figure for jq":         {first(replace(`"p99_ns":\d+`, `"p99_ns":1000,"P99_NS":1000`)), "twice"},
	"window away":           {func(l []string) []string { return l[1:] }, "missing: steps"},
	"last window away":      {func(l []string) []string { return l[:len(l)-1] }, "missing: steps"},
	"run away":              {without(`"arm":{"name":"temper"`), "missing: the whole run"},
	"window twice":          {func(l []string) []string { return append(l, l[0]) }, "the same window is on line 1"},
	"empty file":            {func([]string) []string { return nil }, "no record"},
}

func first(change func(string) string) func([]string) []string {
	return func(lines []string) []string {
		return append([]string{change(lines[0])}, lines[1:]...)
	}
}

func replace(pattern, by string) func(string) string {
	re := regexp.MustCompile(pattern)
	return func(line string) string {
		at := re.FindStringIndex(line)
		if at == nil {
			panic(fmt.Sprintf("edit line: %q is not in it", pattern))
		}
		return line[:at[0]] + by + line[at[1]:]
	}
}

func without(part string) func([]string) []string {
	return func(lines []string) []string {
		return slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, part) })
	}
}

// faster is the latency histogram of a window that was twice as fast.
func faster(line string) (was, is string) {
	var r struct {
		Window struct {
			Primary struct {
				Latency json.RawMessage `json:"latency"`
			} `json:"primary"`
		} `json:"window"`
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		panic(err)
	}
	h := bench.NewHist()
	if err := json.Unmarshal(r.Window.Primary.Latency, h); err != nil {
		panic(err)
	}
	half := bench.NewHist()
	half.RecordN(h.Quantile(.5)/2, h.Count())
	text, err := json.Marshal(half)
	if err != nil {
		panic(err)
	}
	return string(r.Window.Primary.Latency), string(text)
}

var counts = regexp.MustCompile(`"hdr":"[^"]*"`)

// otherHistogram changes the counts and leaves the percentiles.
func otherHistogram(line string) string {
	was, is := faster(line)
	return strings.Replace(line, counts.FindString(was), counts.FindString(is), 1)
}

// otherLatency changes both, so that they fit each other.
func otherLatency(line string) string {
	was, is := faster(line)
	return strings.Replace(line, was, is, 1)
}

func TestEveryEditIsFound(t *testing.T) {
	for name, e := range edits {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(strings.TrimSpace(string(clean(t))), "\n")
			file := strings.Join(e.edit(lines), "\n") + "\n"
			if r := check(t, []byte(file)); !r.found(e.want) {
				t.Errorf("no %q in %v", e.want, r.Findings)
			}
		})
	}
}

// Whoever edits a record and computes checksum and digest again is found where
// the figures contradict each other, and where they contradict the other records.
func TestCarefulForgeriesAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		forge func([]bench.Record) []bench.Record
		want  string
	}{
		"faster histogram":      {change(func(r *bench.Record) { r.Window.Primary.Latency = halved(r.Window.Primary.Latency) }), "its slowest answer took"},
		"outlier dropped":       {change(func(r *bench.Record) { r.Window.Primary.Slowest = r.Window.Primary.Slowest[2:] }), "its slowest answer took"},
		"slowest in disorder":   {change(func(r *bench.Record) { slices.Reverse(r.Window.Primary.Slowest) }), "in order"},
		"more throughput":       {change(func(r *bench.Record) { r.Window.Primary.Achieved *= 10 }), "answers a second"},
		"fewer requests":        {change(func(r *bench.Record) { r.Window.Primary.Requests /= 2 }), "verdict"},
		"harvest made up":       {change(func(r *bench.Record) { r.Window.Ledger.Background *= 2 }), "ledger off"},
		"another campaign's":    {change(func(r *bench.Record) { r.Campaign = "other" }), "of campaign other"},
		"another clock's":       {change(func(r *bench.Record) { r.Machine.Clock = bench.ClockHost }), "timed by"},
		"another kernel's":      {change(func(r *bench.Record) { r.Machine.KernelPackage += "+1" }), "kernel package was"},
		"another emulator's":    {change(func(r *bench.Record) { r.Machine.Emulator = "QEMU 11" }), "emulator was"},
		"another build's":       {change(func(r *bench.Record) { r.Build.NodeSHA256 = "00" }), "other programs"},
		"another description's": {change(func(r *bench.Record) { r.Scenario.Load.Keys++ }), "described otherwise"},
		"best of two":           {func(r []bench.Record) []bench.Record { return append(r, r[3]) }, "the same window"},
		"endless plan":          {change(func(r *bench.Record) { r.Plan.Seeds = 1e12 }), "a plan of 1000000000000 seeds"},
		"step renamed":          {change(func(r *bench.Record) { r.Window.Step.Density = 1 }), "none of the scenario's"},
		"slow arm left out":     {func(r []bench.Record) []bench.Record { return r[:6] }, "missing: the whole run"},
		"and out of the plan": {func(r []bench.Record) []bench.Record {
			arm := r[0].Arm.Name
			r = slices.DeleteFunc(r, func(r bench.Record) bool { return r.Arm.Name == arm })
			for i := range r {
				r[i].Plan.Arms = slices.DeleteFunc(r[i].Plan.Arms, func(a string) bool { return a == arm })
			}
			return r
		}, "by its plan is"},
		"a topology left out": {func(r []bench.Record) []bench.Record {
			for i := range r {
				r[i].Plan.Topologies = []string{"1s4c1t", "1s8c1t"}
			}
			return r
		}, "1s8c1t: missing: all windows on it"},
		"two builds of the probe": {func(r []bench.Record) []bench.Record {
			for i := range r {
				if r[i].Arm.Name == "temper" {
					r[i].Build.NodeSHA256 = "00"
				}
			}
			return r
		}, "another instrument"},
		"more memory": {change(func(r *bench.Record) {
			r.Machine.EmulatorArgs = append(slices.Clone(r.Machine.EmulatorArgs), "-m", "2G")
		}), `emulator's command line had "", has "-m 2G"`},
		"another word": {change(func(r *bench.Record) { r.Machine.Cmdline += " nohz=off" }), `kernel's command line had "", has "nohz=off"`},
		"one lag for all": {change(func(r *bench.Record) {
			r.Window.Primary.Lag = halved(r.Window.Primary.Lag)
			r.Window.Primary.Lag.RecordN(1, 1)
		}), "the client's lag at"},
		"a clock of nobody's": {change(func(r *bench.Record) { r.Machine.PluginSHA256 = "" }), `its clock is "per-vcpu"`},
		"inversions without one": {change(func(r *bench.Record) {
			critical := r.Window.Probe.Tiers["critical"]
			critical.Inversion, critical.InversionMax = time.Millisecond, 0
			r.Window.Probe.Tiers["critical"] = critical
		}), "inversions of 1ms in all, 0s at most"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := check(t, again(t, clean(t), true, tc.forge)); !r.found(tc.want) {
				t.Errorf("no %q in %v", tc.want, r.Findings)
			}
		})
	}
}

// change forges the second record.
func change(forge func(*bench.Record)) func([]bench.Record) []bench.Record {
	return func(records []bench.Record) []bench.Record {
		forge(&records[1])
		return records
	}
}

func halved(h *bench.Hist) *bench.Hist {
	half := bench.NewHist()
	half.RecordN(h.Quantile(.5)/2, h.Count())
	return half
}

// What primaries without a client say of themselves in two ways.
func TestRatesThatContradictAreFound(t *testing.T) {
	for _, c := range []struct {
		kind   string
		result bench.Result
		want   int
	}{
		{"pipe", bench.Result{Achieved: 1e6, Values: map[string]float64{"ns_per_op": 1000}}, 0},
		{"pipe", bench.Result{Achieved: 1e6, Values: map[string]float64{"ns_per_op": 700}}, 1},
		{"bursty", bench.Result{Ops: 500, Achieved: 250}, 0},
		{"bursty", bench.Result{Ops: 500, Achieved: 300}, 1},
	} {
		r := &bench.Record{}
		r.Scenario.Primary.Kind, r.Scenario.Load.Window, r.Window.Primary = c.kind, 2*time.Second, c.result
		if got := rates(r); len(got) != c.want {
			t.Errorf("%s, %+v: %v", c.kind, c.result, got)
		}
	}
}

func TestFindingsSayWhere(t *testing.T) {
	if got := fmt.Sprint(Finding{Line: 3, ID: "a/b", Text: "c"}, Finding{ID: "a", Text: "c"}, Finding{Text: "c"}); got != "line 3: a/b: c a: c c" {
		t.Errorf("got %q", got)
	}
}
