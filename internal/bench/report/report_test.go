// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
)

// window is a valid record whose latencies lie around p99.
func window(arm string, seed uint64, density int, p99 time.Duration, background float64) bench.Record {
	arms, err := bench.ParseArms([]string{arm})
	if err != nil {
		panic(err)
	}
	s, err := scenarios.Find("memcached-ladder")
	if err != nil {
		panic(err)
	}
	s.Load.Window, s.Load.Pad, s.Densities, s.Points = time.Second, 0, []int{0, 1, 2, 4, 8, 16}, []bench.Point{{Name: "6k", Rate: 6000}}
	step := s.Steps()[slices.Index(s.Densities, density)]
	latency, lag := bench.NewHist(), bench.NewHist()
	for i := range 6000 {
		latency.Record(p99 * time.Duration(i) / 5940)
		lag.Record(2 * time.Microsecond)
	}
	used := time.Duration(background * float64(time.Second))
	sample, after := bench.SchedSample{State: "disabled"}, bench.SchedSample{State: "disabled", At: time.Second}
	if arms[0].Ops != "" {
		sample = bench.SchedSample{State: "enabled", Ops: arms[0].Ops, EnableSeq: 1}
		after = sample
		after.At = time.Second
	}
	return bench.Record{
		Schema: bench.Schema, Scenario: s, Arm: arms[0], Seed: seed, Commit: "0123456789ab",
		Machine: bench.Machine{
			Kernel: "7.2.13+deb14-amd64", Cmdline: "console=ttyS0 " + strings.Join(arms[0].Cmdline, " "), Topology: "1s4c1t",
			Emulator: "QEMU emulator version 10.0.2", EmulatorArgs: []string{"-accel", "tcg,thread=single"}, Accel: "tcg",
			Clock: bench.ClockPerVCPU, Packages: map[string]string{"memcached": "1.6.39-1", "libc6": "2.42-3"},
		},
		Host: bench.Host{CPU: "Some CPU", CPUs: 2},
		Window: bench.Window{
			Step: step, IdleBefore: 1, Probe: &bench.Probe{}, Sched: []bench.SchedSample{sample, after}, Realtime: s.Load.Counted(), Weights: map[string]int{"/kubepods": 300},
			Primary: bench.Result{Offered: 6000, Achieved: 6000, Requests: 6000, Latency: latency, Lag: lag},
			Ledger: bench.Ledger{
				Length: s.Load.Counted(), CPUs: 4, PodCPUs: 3, Critical: 300 * time.Millisecond, Background: used,
				Instrument: s.Load.Counted(), Idle: 3*s.Load.Counted() - 300*time.Millisecond - used,
			},
		},
	}
}

// spaces makes non-breaking spaces plain, for comparison.
func spaces(text string) string { return strings.ReplaceAll(text, "\u00a0", " ") }

func ladder() []bench.Record {
	var out []bench.Record
	for i, d := range []int{0, 1, 2, 4, 8, 16} {
		bg := min(float64(d), 2.6)
		out = append(out,
			window("temper", 1, d, time.Duration(120+i)*time.Microsecond, bg-.01*float64(i)),
			window("eevdf", 1, d, []time.Duration{120e3, 210e3, 300e3, 900e3, 21499e3, 1500e3}[i], bg),
			window("eevdf-tuned", 1, d, time.Duration(121+4*i)*time.Microsecond, bg-.02*float64(i)))
	}
	return out
}

func TestHeadlineIsMadeOfTheFigures(t *testing.T) {
	r, err := New(ladder())
	if err != nil {
		t.Fatal(err)
	}
	if r.Arms[0].Name != "eevdf" || r.Arms[2].Name != "temper" || r.Arms[0].Rows[5].Density != 16 {
		t.Fatalf("arms or steps are out of order: %+v", r.Arms)
	}
	got := spaces(strings.Join(r.Headline(), "\n"))
	for _, want := range []string{
		"With up to 16 spinners beside it, memcached's worst p99 was 21.5 ms under eevdf, 141 µs under eevdf-tuned and 125 µs under temper; without any it was 120 µs, 121 µs and 120 µs.",
		"179× under eevdf (at 8), 1.17× under eevdf-tuned (at 16) and 1.04× under temper (at 16)",
		"2.60 CPUs under eevdf, 2.50 under eevdf-tuned and 2.55 under temper",
		"Against eevdf, temper's p99 is equal without background and 92 % lower at 16 spinners, where background gets 2 % less.",
		"Against eevdf-tuned, temper's p99 is 1 % lower without background and 11 % lower at 16 spinners, where background gets 2 % more.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("headline lacks %q:\n%s", want, got)
		}
	}
}

func TestLossesAreSaidInTheSameWords(t *testing.T) {
	r, err := New([]bench.Record{
		window("temper", 1, 0, 100*time.Microsecond, 0), window("temper", 1, 4, 300*time.Microsecond, 2),
		window("eevdf", 1, 0, 100*time.Microsecond, 0), window("eevdf", 1, 4, 200*time.Microsecond, 2.5),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Headline(), "\n"); !strings.Contains(got, "temper's p99 is equal without background and 50 % higher at 4 spinners, where background gets 20 % less.") {
		t.Error(got)
	}
}

func TestVoidWindowsEnterNoFigure(t *testing.T) {
	bad := window("temper", 2, 4, time.Second, 2.6)
	bad.Window.Sched[1].State = "disabled"
	bad.Verdict = bench.Verdict{Valid: true} // a file may say anything
	records := append(ladder(), bad)
	r, err := New(records)
	if err != nil {
		t.Fatal(err)
	}
	row, _ := r.Arms[2].row(4)
	if row.Windows != 1 || r.Void != 1 || row.P(.99) > time.Millisecond {
		t.Errorf("%d windows, %d void, p99 %v", row.Windows, r.Void, row.P(.99))
	}
	if got := strings.Join(r.Caveats(), "\n"); !strings.Contains(got, "1 of 19 windows are void") {
		t.Errorf("caveats do not count it:\n%s", got)
	}
	// An arm without a single valid first step has no ratio, and says so.
	only := []bench.Record{bad, window("temper", 2, 0, time.Millisecond, 0)}
	if r, err = New(only); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Headline(), "\n"); !strings.Contains(got, "No figure for temper") {
		t.Error(got)
	}
}

func TestSingleStepSaysSo(t *testing.T) {
	r, err := New([]bench.Record{window("eevdf", 1, 4, 100*time.Microsecond, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Headline(), "\n"); got != "eevdf has a single step: nothing to compare it with." {
		t.Error(got)
	}
	if got := strings.Join(r.Caveats(), "\n"); !strings.Contains(got, "A step has 6000 requests") {
		t.Error(got)
	}
}

func TestSeedsAreMerged(t *testing.T) {
	r, err := New([]bench.Record{
		window("eevdf", 1, 0, 100*time.Microsecond, 1), window("eevdf", 2, 0, 300*time.Microsecond, 2), window("eevdf", 3, 0, 300*time.Microsecond, 3),
	})
	if err != nil {
		t.Fatal(err)
	}
	row := r.Arms[0].Rows[0]
	if row.Windows != 3 || row.Latency.Count() != 18000 || math.Abs(row.Background-2) > 1e-9 {
		t.Errorf("%d windows, %d requests, %.3f background CPUs", row.Windows, row.Latency.Count(), row.Background)
	}
	if p := row.P(.99); p < 290*time.Microsecond {
		t.Errorf("merged p99 is %v: it was averaged", p)
	}
}

func TestRefusesWhatCannotBeCompared(t *testing.T) {
	other := window("eevdf", 1, 0, time.Millisecond, 0)
	other.Machine.Clock = bench.ClockHost
	foreign := window("eevdf", 1, 0, time.Millisecond, 0)
	foreign.Scenario.Name = "redis-ladder"
	for name, records := range map[string][]bench.Record{
		"no records":     nil,
		"not comparable": append(ladder(), other),
		"scenarios":      append(ladder(), foreign),
	} {
		if _, err := New(records); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	records := ladder()
	records[4].Machine.Cmdline = `evil=<script>alert(1)</script>`
	records[7].Window.Primary.Lost = 3
	r, err := New(records)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	text := spaces(page.String())
	if found := regexp.MustCompile(`(?i)<script|https?:|src=|@import|url\(|<link`).FindString(text); found != "" {
		t.Errorf("the page reaches for %q", found)
	}
	for _, want := range []string{"prefers-color-scheme: dark", "p99 latency, logarithmic", "background pods, one spinner each", "3 requests lost", "sent at most 2.0 µs late at p99", "memcached 1.6.39-1", "0123456789ab"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1) {
		if err := wellFormed(svg); err != nil {
			t.Errorf("%v in %.80s…", err, svg)
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("a drawing with no number in it: %.80s…", svg)
		}
	}
	if dir := os.Getenv("TEMPER_PAGE_DIR"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "page.html"), page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func wellFormed(text string) error {
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestTextIsAligned(t *testing.T) {
	records := ladder()
	records[1].Window.Primary.Lost = 3
	r, err := New(records)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.Text(&out); err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^(  (eevdf|temper)|p99 latency|background CPUs).*$`).FindAllString(out.String(), -1)
	if len(rows) != 8 {
		t.Fatalf("%d rows of two tables:\n%s", len(rows), out.String())
	}
	for _, row := range rows {
		if n := len([]rune(row)); n != 16+6*9 {
			t.Errorf("row of %d columns: %q", n, row)
		}
	}
	if !strings.Contains(out.String(), "void") {
		t.Error("a void step does not show")
	}
	line, head := Line(&records[0]), []rune(Columns)
	if n := strings.LastIndex(line, "void") + strings.LastIndex(line, "valid"); n == -2 {
		t.Errorf("no verdict in %q", line)
	}
	if at := strings.Index(string(head), "verdict"); at < 0 {
		t.Error("no verdict column")
	}
}

func TestTicks(t *testing.T) {
	for name, tc := range map[string]struct {
		chart chart
		want  []float64
	}{
		"linear": {chart{series: []series{{y: []float64{0, 1.3, math.NaN()}}}, limit: 3}, []float64{0, .5, 1, 1.5, 2, 2.5, 3, 3.5}},
		"log":    {chart{log: true, series: []series{{y: []float64{120, 1500}}}}, []float64{100, 200, 500, 1000, 2000}},
		"empty":  {chart{log: true, series: []series{{y: []float64{math.NaN()}}}}, []float64{1, 2, 5, 10}},
	} {
		low, high := tc.chart.bounds()
		got := tc.chart.ticks(low, high)
		if len(got) != len(tc.want) {
			t.Errorf("%s: ticks %v, want %v", name, got, tc.want)
			continue
		}
		for i := range got {
			if math.Abs(got[i]-tc.want[i]) > 1e-9 {
				t.Errorf("%s: ticks %v, want %v", name, got, tc.want)
			}
		}
	}
}
