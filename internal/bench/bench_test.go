// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestKubeletWeight(t *testing.T) {
	// The fixed points of the map, and one value between them.
	for milli, want := range map[int]int{0: 1, 1: 1, 1000: 100, 2000: 174, 256000: 10000, 1 << 30: 10000} {
		if got := KubeletWeight(milli); got != want {
			t.Errorf("KubeletWeight(%d) = %d, want %d", milli, got, want)
		}
	}
}

func TestParseArms(t *testing.T) {
	arms, err := ParseArms([]string{"temper", "eevdf"})
	if err != nil || len(arms) != 2 || arms[0].Name != "temper" {
		t.Errorf("got %v, %v", arms, err)
	}
	for _, bad := range [][]string{nil, {"eevdf", "cfs"}} {
		if _, err := ParseArms(bad); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestScenarioValidate(t *testing.T) {
	if err := MemcachedLadder().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Scenario){
		"no step":          func(s *Scenario) { s.Densities = nil },
		"negative density": func(s *Scenario) { s.Densities = []int{0, -1} },
		"no thread":        func(s *Scenario) { s.Threads = 0 },
		"idle thread":      func(s *Scenario) { s.Load.Conns = 1 },
		"no rate":          func(s *Scenario) { s.Load.Rate = 0 },
		"no window":        func(s *Scenario) { s.Load.Window = 0 },
	} {
		s := MemcachedLadder()
		spoil(&s)
		if s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// good is a record without a fault.
func good() *Record {
	s := MemcachedLadder()
	s.Load.Rate, s.Load.Window = 6000, time.Second
	latency, lag := NewHist(), NewHist()
	for i := range 6000 {
		latency.Record(time.Duration(80+i%50) * time.Microsecond)
		lag.Record(time.Duration(i%5) * time.Microsecond)
	}
	return &Record{
		Schema: Schema, Scenario: s, Arm: Arms()[2], Seed: 1,
		Window: Window{
			Density: 4, IdleBefore: .995,
			Client: Client{Offered: 6000, Achieved: 6000, Requests: 6000, Latency: latency, Lag: lag},
			Ledger: Ledger{Length: time.Second, CPUs: 4, PodCPUs: 3, Critical: 400 * time.Millisecond, Background: 2500 * time.Millisecond, Instrument: time.Second, System: 60 * time.Millisecond, Idle: 40 * time.Millisecond},
			Sched:  []SchedSample{{State: "enabled", Ops: "temper", EnableSeq: 1}, {At: time.Second, State: "enabled", Ops: "temper", EnableSeq: 1}},
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
		"lost request":       {func(r *Record) { r.Window.Client.Lost = 1 }, "1 requests lost"},
		"wrong answer":       {func(r *Record) { r.Window.Client.Wrong = 2 }, "2 answered wrongly"},
		"late client":        {func(r *Record) { late(r.Window.Client.Lag) }, "client was the bottleneck"},
		"waiting client":     {func(r *Record) { r.Window.Client.RunDelay = 20 * time.Millisecond }, "waited 2.00 %"},
		"too few requests":   {func(r *Record) { r.Window.Client.Offered = 3000 }, "drew 3000 requests"},
		"missing latencies":  {func(r *Record) { r.Window.Client.Latency = NewHist() }, "0 latencies for 6000"},
		"busy before":        {func(r *Record) { r.Window.IdleBefore = .9 }, "only 90.0 % idle"},
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
	stock := good()
	stock.Arm = Arms()[0]
	stock.Window.Sched = []SchedSample{{}, {}} // a kernel without sched_ext
	if v := Judge(stock); !v.Valid {
		t.Errorf("a stock window on a kernel without sched_ext is void: %v", v.Reasons)
	}
}

func late(lag *Hist) {
	for range 100 {
		lag.Record(time.Millisecond)
	}
}

func TestRecordsSurviveTheFile(t *testing.T) {
	var file bytes.Buffer
	want := good()
	want.Verdict = Judge(want)
	for range 2 {
		if err := WriteRecord(&file, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadRecords(&file)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got[1])
	if !bytes.Equal(a, b) {
		t.Errorf("wrote %s\nread  %s", a, b)
	}
}

func TestReadRecordsRefuses(t *testing.T) {
	var line bytes.Buffer
	if err := WriteRecord(&line, good()); err != nil {
		t.Fatal(err)
	}
	text := line.String()
	for name, bad := range map[string]string{
		"line 2":              text + "{",
		"schema 2":            strings.Replace(text, `"schema":1`, `"schema":2`, 1),
		"no histogram":        `{"schema":1}`,
		"are stated":          strings.Replace(text, `"p99_ns":`, `"p99_ns":1`, 1),
		"illegal base64 data": strings.Replace(text, `"hdr":"`, `"hdr":"*`, 1),
	} {
		if _, err := ReadRecords(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestHistMergesWithoutLoss(t *testing.T) {
	a, b, both := NewHist(), NewHist(), NewHist()
	for i := range 10_000 {
		d := time.Duration(i*i) * time.Nanosecond
		both.Record(d)
		if i%3 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	a.Merge(b)
	for _, q := range []float64{.5, .9, .99, .999, 1} {
		if a.Quantile(q) != both.Quantile(q) {
			t.Errorf("quantile %v: %v merged, %v at once", q, a.Quantile(q), both.Quantile(q))
		}
	}
	if a.Count() != both.Count() || a.Max() != both.Max() {
		t.Errorf("count %d, max %v", a.Count(), a.Max())
	}
	top := NewHist()
	top.Record(time.Hour)
	if top.Count() != 1 || top.Max() < 100*time.Second {
		t.Errorf("a duration beyond the top: count %d, max %v", top.Count(), top.Max())
	}
}
