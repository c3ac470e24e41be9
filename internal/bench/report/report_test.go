// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// made is the report on invented campaigns.
func made(t *testing.T, campaigns ...invented.Campaign) *Report {
	t.Helper()
	fold := ladder.NewFold("2026-01-01-invented")
	for _, c := range campaigns {
		records, err := c.Records()
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range records {
			if err := fold.Add(rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	ladders, err := fold.Ladders()
	if err != nil {
		t.Fatal(err)
	}
	return New(ladders)
}

// climb is a ladder with as few steps as show everything.
func climb(seeds int, arms ...string) invented.Campaign {
	s := invented.Ladder("memcached")
	s.Densities = []int{0, 4, 16, 4, 0}
	return invented.Campaign{Scenario: s, Arms: arms, Seeds: seeds, Jitter: .002, Shape: invented.Typical}
}

// plainText makes non-breaking spaces plain and lines one, for comparison.
func plainText(parts ...string) string {
	return strings.Join(strings.Fields(plainSpaces(strings.Join(parts, " "))), " ")
}

func lacks(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestHeadlineIsMadeOfTheFigures(t *testing.T) {
	r := made(t, climb(5, "temper", "eevdf", "eevdf-tuned", "static", "temper:landing"))
	lacks(t, plainText(r.Sections[0].Headline()...),
		"Beside 16 background spinners, memcached's p99 request latency at 60 % (30,000 a second) is 1.04× (1.0",
		"its own without any under temper; 32.", " under eevdf, 1.2", " under eevdf-tuned and 1.0", "under static.",
		"Without any it is 6", "2.59 (2.58–2.60)", " CPUs under eevdf, 99.6 % of what was left",
		"Against eevdf-tuned, temper's p99 is", "lower (−1", "at 16 spinners; its background work: ",
		"Against static, temper's p99 is", "as much")
	few := made(t, climb(3, "temper", "static"))
	lacks(t, plainText(few.Sections[0].Headline()...), "Against static, of 3 seeds, too few to tell: temper's p99 is")
}

// What is not shown is not said; what is lost is said as what is won.
func TestChange(t *testing.T) {
	e := func(figure, low, high float64, seeds int) stats.Estimate {
		return stats.Estimate{Figure: figure, Low: low, High: high, Seeds: seeds}
	}
	for want, got := range map[string]string{
		"3.0 % higher (+1.0 to +5.0 %)":        change(e(1.03, 1.01, 1.05, 8), "higher", "lower"),
		"3.0 % lower (−5.0 to −1.0 %)":         change(e(.97, .95, .99, 8), "higher", "lower"),
		"not shown to differ (−1.0 to +7.0 %)": change(e(1.03, .99, 1.07, 8), "higher", "lower"),
		"3.00× (2.00–4.00) as high":            change(e(3, 2, 4, 8), "higher", "lower"),
		"2.00× (1.90–2.10) as much":            change(e(2, 1.9, 2.1, 8), "more", "less"),
		"3.0 % higher":                         change(e(1.03, 1.03, 1.03, 1), "higher", "lower"),
		"3.00× as high":                        change(e(3, 3, 3, 1), "higher", "lower"),
		", of 1 seed, too few to tell":         tooFew(1),
		", of 4 seeds, too few to tell":        tooFew(4),
		"":                                     tooFew(5),
		"not shown to differ (−5.0 to +1.0 %)": change(e(.97, .95, 1.01, 3), "higher", "lower"),
		"equal":                                change(e(1, 1, 1, 8), "higher", "lower"),
		"not measured":                         change(stats.None(), "higher", "lower"),
		"66.0 µs (61.0–71.0)":                  with(e(66e3, 61e3, 71e3, 8), micros),
		"1.02 ms (950 µs–1.10 ms)":             with(e(1.02e6, 950e3, 1.1e6, 8), micros),
		"66.0 µs":                              with(e(66e3, 66e3, 66e3, 1), micros),
		none:                                   with(stats.None(), micros),
		"1,234,567":                            rate(1234567.2),
		"123":                                  rate(123),
	} {
		if plainSpaces(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestControls(t *testing.T) {
	arms := []string{"eevdf", "temper", "temper:again", "temper:no-probe", "eevdf:inverted"}
	states := func(c invented.Campaign) map[string]State {
		out := map[string]State{}
		for _, control := range made(t, c).Sections[0].Controls() {
			name, _, _ := strings.Cut(control.Name, ":")
			out[name] = control.State
		}
		return out
	}
	good := states(climb(5, arms...))
	for name, want := range map[string]State{"A/A": AsExpected, "positive": AsExpected, "the probe in temper": Told, "null": Told, "ladder up and down": AsExpected, "the client": AsExpected} {
		if good[name] != want {
			t.Errorf("%s: %q, want %q", name, good[name], want)
		}
	}
	// A second run that differs, an inverted arm that looks good, a ladder that remembers.
	bad := climb(5, arms...)
	bad.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		if arm == "eevdf:inverted" {
			arm = "eevdf"
		}
		s := invented.Typical(arm, seed, step)
		if arm == "temper:again" {
			s.P50, s.P99 = s.P50*6/5, s.P99*6/5
		}
		if step.Index%5 > 2 {
			s.P50, s.P99 = s.P50*11/10, s.P99*11/10
		}
		return s
	}
	got := states(bad)
	for _, name := range []string{"A/A", "positive", "ladder up and down"} {
		if got[name] != Unexpected {
			t.Errorf("%s: %q, want %q", name, got[name], Unexpected)
		}
	}
	// With few seeds nothing is judged by intervals.
	if few := states(climb(2, arms...)); few["A/A"] != Told || few["ladder up and down"] != Told {
		t.Errorf("with two seeds: %v", few)
	}
}

// One step of many that is far off, as of an arm whose tail has two modes, is chance.
func TestControlsAllowWhatChanceDoes(t *testing.T) {
	at := func(figure float64) compared {
		return compared{stats.Estimate{Figure: figure, Low: figure - .01, High: figure + .01, Seeds: 8}, "somewhere", "p99"}
	}
	for name, tc := range map[string]struct {
		off  []float64 // of 32
		want State
	}{
		"none":              {nil, AsExpected},
		"one, far":          {[]float64{.39}, AsExpected},
		"as many as chance": {[]float64{1.1, 1.1, 1.1, 1.1, 1.1}, AsExpected},
		"one more":          {[]float64{1.1, 1.1, 1.1, 1.1, 1.1, 1.1}, Unexpected},
		"one more, near":    {[]float64{1.04, 1.04, 1.04, 1.04, 1.04, 1.04}, AsExpected},
	} {
		var all []compared
		for i := range 32 {
			figure := 1.0
			if i < len(tc.off) {
				figure = tc.off[i]
			}
			all = append(all, at(figure))
		}
		if did, state := same(all); state != tc.want {
			t.Errorf("%s: %q (%s), want %q", name, state, did, tc.want)
		}
	}
	if _, state := same([]compared{at(1.2)}); state != Unexpected {
		t.Errorf("the only interval leaves out 1: %q", state)
	}
	for _, c := range made(t, climb(5, "temper", "temper:again")).Sections[0].Controls() {
		if strings.HasPrefix(c.Name, "A/A") {
			lacks(t, c.Should, "of 6 intervals chance lets up to 2 leave out 1")
		}
	}
}

// What the probe makes better is no bound of what it makes worse.
func TestProbeCostsAtMostTheLargestRatio(t *testing.T) {
	c := climb(5, "temper", "temper:no-probe")
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		switch {
		case arm == "temper:no-probe" && step.Density == 4:
			s.P50, s.P99 = s.P50*10/9, s.P99*10/9
		case arm == "temper" && step.Density == 16:
			s.P50, s.P99 = s.P50*108/100, s.P99*108/100
		}
		return s
	}
	for _, c := range made(t, c).Sections[0].Controls() {
		if c.Name == "the probe in temper" && !strings.Contains(c.Did, "at most 1.08×") {
			t.Errorf("%s: %s", c.Name, c.Did)
		}
	}
}

// Whatever a record file says that parses, there is a report on it.
func TestOddRecordsHaveAReport(t *testing.T) {
	controlsAlone := climb(2, "temper", "temper:again")
	controlsAlone.Spoil = func(rec *bench.Record) {
		if !rec.Arm.Again {
			rec.Window.Primary.Wrong = 1
		}
	}
	unknown := climb(2, "temper")
	unknown.Scenario.Background = []string{"fork", "knit"}
	noPoints := climb(1, "temper")
	noPoints.Scenario.Points = nil
	noPoints.Spoil = func(rec *bench.Record) { rec.Window.Step.Point = "elsewhere" }
	for want, c := range map[string]invented.Campaign{
		"20 of 40 windows are void":                      controlsAlone,
		"knit (not known to this program)":               unknown,
		"No window is of a step that this scenario has.": noPoints,
	} {
		r := made(t, c)
		var out strings.Builder
		if err := errors.Join(r.Text(&out), r.Markdown(&out)); err != nil {
			t.Fatal(err)
		}
		out.WriteString(render(t, r, "odd"))
		lacks(t, plainText(out.String()), want)
	}
}

// What charts show has a colour in the sheet, for light and for dark, and no other's; and
// a dash and a shape that no other has, for eyes without.
func TestChartedArmsHaveLooks(t *testing.T) {
	names := []string{"exec:a", "exec:b"}
	for _, a := range bench.Arms() {
		names = append(names, a.Name)
	}
	for _, m := range bench.Modifiers() {
		names = append(names, "temper:"+m.Name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "temper:inverted" }) // eevdf's only
	c := climb(1, append(names, "eevdf:no-limit")...)
	c.Scenario.Densities = []int{0}
	r := made(t, c)
	var page strings.Builder
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	type pair struct{ dash, shape int }
	colours, looks := map[string]string{}, map[pair]string{}
	for _, a := range r.Sections[0].Arms {
		if a.Control() {
			continue
		}
		found := regexp.MustCompile(fmt.Sprintf(`--s%d: (#[0-9a-f]{6});`, a.Style)).FindAllStringSubmatch(page.String(), -1)
		if len(found) != 2 {
			t.Errorf("%s, style %d: %d colours in the sheet, want a light and a dark one", a.Name, a.Style, len(found))
		}
		for _, m := range found {
			if other := colours[m[1]]; other != "" {
				t.Errorf("%s has the colour of %s", a.Name, other)
			}
			colours[m[1]] = a.Name
		}
		dash, shape := look(a.Style)
		if other := looks[pair{dash, shape}]; other != "" {
			t.Errorf("%s has the dash and the shape of %s", a.Name, other)
		}
		looks[pair{dash, shape}] = a.Name
		_, ours := look(r.Sections[0].Arm("temper").Style)
		if a.Base() == "temper" && a.Ablation() && shape == ours {
			t.Errorf("%s has the shape of temper, which is drawn beside it", a.Name)
		}
	}
}

func TestOneSeedSaysSo(t *testing.T) {
	s := made(t, climb(1, "eevdf", "temper")).Sections[0]
	text := plainText(s.Headline()...)
	if strings.Contains(text, "–") || strings.Contains(text, "(−") {
		t.Errorf("an interval of one seed: %s", text)
	}
	lacks(t, plainText(s.Caveats()...), "One seed (1)", "there are no intervals", "No p99 is given of fewer than 1,000", "No p99.9 is given")
	lacks(t, plainText(made(t, climb(3, "eevdf")).Sections[0].Caveats()...), "3 seeds only", "about 75 % of campaigns")
}

// The stock kernel without a limit is no part of ours.
func TestAblationsAreOfOurs(t *testing.T) {
	c := climb(1, "eevdf", "eevdf:no-limit", "temper", "temper:no-limit", "temper:again")
	var names []string
	for _, r := range made(t, c).Sections[0].Main.Ablations() {
		names = append(names, r.Name)
	}
	if want := []string{"temper", "temper:no-limit"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestMissingSeedsAreSaid(t *testing.T) {
	c := climb(2, "eevdf", "temper")
	c.Spoil = func(rec *bench.Record) {
		rec.Plan = bench.Plan{Arms: []string{"eevdf", "temper"}, SeedFirst: 1, Seeds: 3}
	}
	lacks(t, plainText(made(t, c).Sections[0].Caveats()...), "Less is here than was planned: eevdf has all windows of 2 of 3 seeds and temper has all windows of 2 of 3 seeds.")
	c.Seeds = 3
	c.Spoil = func(rec *bench.Record) { rec.Plan.Topologies = []string{"1s4c1t", "1s8c1t"} }
	lacks(t, plainText(made(t, c).Sections[0].Caveats()...), "Less is here than was planned: 1s8c1t has no window.")
	c.Spoil = func(rec *bench.Record) { rec.Plan.Topologies = []string{"1s4c1t"} }
	if text := plainText(made(t, c).Sections[0].Caveats()...); strings.Contains(text, "planned") {
		t.Errorf("all is there: %s", text)
	}
}

func TestVoidWindowsAreListed(t *testing.T) {
	c := climb(1, "eevdf", "temper")
	c.Spoil = func(rec *bench.Record) {
		if rec.Arm.Name == "temper" && rec.Window.Step.Density == 16 {
			rec.Window.Primary.Lost = 3
		}
	}
	r := made(t, c)
	var text, md, html bytes.Buffer
	for _, err := range []error{r.Text(&text), r.Markdown(&md), r.HTML(&html)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, out := range []string{text.String(), md.String(), html.String()} {
		lacks(t, plainText(out), "2 of 20 windows are void", "3 requests lost")
	}
	said := plainText(r.Sections[0].Headline()...)
	if strings.Contains(said, "under temper") {
		t.Error("a void step is in the headline")
	}
	lacks(t, said, "No figure for temper at 16 spinners: its windows there are void (3000 latencies for 3000 requests, 3 of them lost)")
}

// kinds are campaigns of every kind of scenario.
func kinds() map[string]invented.Campaign {
	own := func(kind, measures string, points []string, densities []int, arms []string, shape func(arm string, step bench.Step, s *invented.Shape)) invented.Campaign {
		return invented.Campaign{
			Scenario: invented.Own(kind, measures, points, densities...), Arms: arms, Seeds: 5, Jitter: .002,
			Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
				s := invented.Typical(arm, seed, step)
				s.Ops, s.Achieved = 1000, 500
				shape(arm, step, &s)
				return s
			},
		}
	}
	limited := func(kind string) invented.Campaign {
		return invented.Campaign{
			Scenario: invented.Limited(kind), Arms: []string{"eevdf", "eevdf-10ms", "temper", "temper:no-limit"}, Seeds: 5, Jitter: .002,
			Shape: func(arm string, seed uint64, step bench.Step) invented.Shape {
				s := invented.Typical(arm, seed, step)
				invented.AtLimit(arm, &s)
				return s
			},
		}
	}
	all := []string{"eevdf", "eevdf-tuned", "temper"}
	return map[string]invented.Campaign{
		"wakeup": own("wakeup", "wakeup delay", []string{"timer", "eventfd"}, []int{0, 4}, all, func(string, bench.Step, *invented.Shape) {}),
		"pipe": own("pipe", "hand-over", []string{"one-cpu", "two-cpus"}, []int{0}, []string{"eevdf", "eevdf:no-probe", "temper", "temper:no-probe"}, func(arm string, _ bench.Step, s *invented.Shape) {
			s.P99, s.Values = 0, map[string]float64{perOp: 1000}
			if strings.HasPrefix(arm, "temper") {
				s.Values[perOp] = 1100
			}
		}),
		"weights": own("weights", "wakeup delay", []string{"1:3"}, []int{0}, all, func(arm string, _ bench.Step, s *invented.Shape) {
			s.Pods = []bench.Pod{{Name: "a", Tier: "standard", Weight: 1, Threads: 3, CPUTime: 100}, {Name: "b", Tier: "standard", Weight: 3, Threads: 8, CPUTime: 301}}
		}),
		"requests":   limited("requests"),
		"postgresql": limited("postgresql"),
		"starvation": own("starvation", "wait", nil, []int{0, 4}, all, func(arm string, _ bench.Step, s *invented.Shape) {
			s.Pods = []bench.Pod{{Name: "pinned", Tier: "background", Weight: 1, Threads: 1, CPUTime: 2 * time.Millisecond}}
		}),
	}
}

func TestEveryKindHasAHeadlineAndAPage(t *testing.T) {
	want := map[string][]string{
		"wakeup":     {"p99 wakeup delay at timer is 1.02×", "under eevdf-tuned"},
		"pipe":       {"One-cpu: instructions per hand-over against eevdf, 1.10× (1.10–1.10) under temper and 1.10× (1.10–1.10) under temper:no-probe."},
		"weights":    {"The farthest that a pod's CPU share is from what its cpu.weight asks for within its tier is 0.2 % (0.2–0.2)", "under temper (pod a at 1:3)"},
		"requests":   {"Limited to 1.5 CPUs, p99 request latency at saturated is 58.5", "The longest that there was work and none of its threads ran is 60.0 ms under eevdf, 2.60 ms under temper and 8.00 ms under eevdf-10ms."},
		"postgresql": {"Limited to 1.5 CPUs, PostgreSQL's p99 request latency at saturated is 58.5", "Done in a second: 745 (745–745) under eevdf"},
		"starvation": {"The longest that any thread was runnable and did not run is", "90.0 ms under temper"},
	}
	for kind, c := range kinds() {
		r := made(t, c)
		lacks(t, plainText(r.Sections[0].Headline()...), want[kind]...)
		render(t, r, kind)
	}
}

func TestHeadlineSaysEachLimitInTurn(t *testing.T) {
	c := kinds()["requests"]
	c.Scenario.Primary.LimitSteps = []bench.LimitStep{{At: time.Millisecond, LimitMilliCPU: 2500}, {At: 2 * time.Millisecond, LimitMilliCPU: 500}}
	lacks(t, plainText(made(t, c).Sections[0].Headline()...), "Limited to 1.5, then 2.5, then 0.5 CPUs, p99")
}

func TestPageShowsEverything(t *testing.T) {
	c := climb(5, invented.Arms()...)
	c.Spoil = func(rec *bench.Record) { rec.Machine.ClockNote = `<script>alert(1)</script>` }
	text := plainText(render(t, made(t, c), "ladder"))
	lacks(t, text, "prefers-color-scheme: dark", "p99 request latency, log", "background spinners", "CPUs that background gets, of the pods&#39; 3", "The objective is twice the p99 of eevdf without background.",
		"p99 over own p99 without background", "wakeup delay of the critical tier", "inversion time per critical CPU time", "&gt; 16", "A/A: temper:again against temper",
		"Every figure at 60 %", "Temper, a part of it changed or left out", "memcached 1.0-1", "-seed SEED")
}

func TestSeveralScenariosOnOnePage(t *testing.T) {
	spoilt := climb(1, "eevdf", "temper")
	spoilt.Scenario.Topology = "1s8c1t"
	spoilt.Spoil = func(rec *bench.Record) { rec.Window.Primary.Lost = 1 }
	text := render(t, made(t, climb(5, "eevdf", "temper"), spoilt, kinds()["pipe"]), "several")
	lacks(t, text, `href="#s1"`, `id="s1"`, `href="#s3"`, `id="s3"`, `href="#s2-void"`, `id="s2-void"`, "20 void windows")
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if ids[m[1]] {
			t.Errorf("two places called %q", m[1])
		}
		ids[m[1]] = true
	}
}

// render makes the page and checks what is true of every page.
func render(t *testing.T, r *Report, name string) string {
	t.Helper()
	var page bytes.Buffer
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if found := regexp.MustCompile(`(?i)<script|https?:|src=|@import|url\(|<link`).FindString(text); found != "" {
		t.Errorf("%s: the page reaches for %q", name, found)
	}
	for _, figure := range regexp.MustCompile(`(?s)<figure>.*?</figure>`).FindAllString(text, -1) {
		if err := wellFormed(figure); err != nil {
			t.Errorf("%s: %v in %.80s…", name, err, figure)
		}
		if strings.Contains(figure, "NaN") || strings.Contains(figure, "Inf") {
			t.Errorf("%s: a drawing with no number in it: %.80s…", name, figure)
		}
	}
	// To look at: TEMPER_PAGE_DIR=DIR go test ./internal/bench/report
	if dir := os.Getenv("TEMPER_PAGE_DIR"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".html"), page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return text
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

func TestTablesAreAligned(t *testing.T) {
	var out strings.Builder
	r := made(t, climb(2, "eevdf", "temper"))
	if err := r.Text(&out); err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^  (arm|eevdf|temper) .*$`).FindAllString(out.String(), -1)
	if len(rows) != 6 {
		t.Fatalf("%d rows of two tables:\n%s", len(rows), out.String())
	}
	for i, row := range rows {
		if n, want := len([]rune(row)), len([]rune(rows[i/3*3])); n != want {
			t.Errorf("row of %d columns, its head has %d: %q", n, want, row)
		}
	}
	var md strings.Builder
	if err := r.Markdown(&md); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(md.String()) {
		if strings.HasPrefix(line, "| eevdf ") && strings.Count(line, "|") != 9 {
			t.Errorf("a row that is no row of its table: %q", line)
		}
	}
}

// Pods of equal weight that do different things: how unequal they came out is in the summary.
func TestUnequalBackgroundShows(t *testing.T) {
	c := climb(4, "temper")
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		if step.Density > 0 {
			s.Pods = []bench.Pod{
				{Name: "fork-1", Tier: "background", Weight: 1, CPUTime: 30 * time.Millisecond},
				{Name: "switch-2", Tier: "background", Weight: 1, CPUTime: 10 * time.Millisecond},
			}
		}
		return s
	}
	summary := func() string {
		var md strings.Builder
		if err := made(t, c).Markdown(&md); err != nil {
			t.Fatal(err)
		}
		return md.String()
	}
	const head, off = "share farthest off at 16", "50.0 % (50.0–50.0)"
	if strings.Contains(summary(), head) {
		t.Error("spinners are all alike, and there is a column for how they differ")
	}
	c.Scenario.Background = []string{"fork", "switch"}
	lacks(t, summary(), head, off)
}

func TestLineHasAllColumns(t *testing.T) {
	records, err := climb(1, "temper").Records()
	if err != nil {
		t.Fatal(err)
	}
	line := Line(records[7])
	lacks(t, line, "temper", "60 %", "30000", "2.55", "valid")
	before, _, _ := strings.Cut(Columns, "  verdict")
	if !strings.HasPrefix(string([]rune(line)[len([]rune(before)):]), "  valid") {
		t.Errorf("the verdict is not below its head:\n%s\n%s", Columns, line)
	}
	if strings.Contains(line, none) {
		t.Errorf("a figure is missing: %s", line)
	}
	records[7].Window.Primary.Latency = nil
	lacks(t, Line(records[7]), none)
}

func TestTicks(t *testing.T) {
	for name, tc := range map[string]struct {
		axis   axis
		values []float64
		want   []float64
	}{
		"linear":  {axis{}, []float64{0, 1.3, 3.15}, []float64{0, .5, 1, 1.5, 2, 2.5, 3, 3.5}},
		"log":     {axis{log: true}, []float64{120, 1500}, []float64{100, 200, 500, 1000, 2000}},
		"empty":   {axis{log: true}, []float64{0}, []float64{1, 2, 5, 10}},
		"decades": {axis{log: true}, []float64{1, 1e6}, []float64{1, 10, 100, 1e3, 1e4, 1e5, 1e6}},
	} {
		a := tc.axis
		a.fit(tc.values...)
		got := a.ticks()
		if len(got) != len(tc.want) {
			t.Errorf("%s: ticks %v, want %v", name, got, tc.want)
			continue
		}
		for i := range got {
			if d := got[i] - tc.want[i]; d > 1e-6 || d < -1e-6 {
				t.Errorf("%s: ticks %v, want %v", name, got, tc.want)
			}
		}
	}
}

func TestLimitsHaveATableAndCaveats(t *testing.T) {
	s := made(t, kinds()["requests"]).Sections[0]
	if head := s.Every(s.Main).Head; !slices.Contains(head, "p95") {
		t.Errorf("no p95 in %q", head)
	}
	tables := s.Tables()
	if len(tables) != 1 {
		t.Fatalf("tables: %+v", tables)
	}
	table := tables[0]
	for _, want := range []string{"use of quota over 1 s", "use of quota over 100 ms", "longest stop with work to do", "periods throttled"} {
		if !slices.Contains(table.Head, strings.ReplaceAll(strings.ReplaceAll(want, "1 s", "1"+nbsp+"s"), "100 ms", "100"+nbsp+"ms")) {
			t.Errorf("no %q in %q", want, table.Head)
		}
	}
	at := slices.Index(table.Head, "use of quota over 100"+nbsp+"ms")
	want := map[string]string{"eevdf": "0.960–1.040", "temper": "0.995–1.005", "temper:no-limit": none}
	for _, row := range table.Rows {
		if w := want[row[0]]; w != "" && row[at] != w {
			t.Errorf("%s: %s, want %s", row[0], row[at], w)
		}
	}
	for arm := range want {
		if !slices.ContainsFunc(table.Rows, func(row []string) bool { return row[0] == arm }) {
			t.Errorf("%s is not in the table", arm)
		}
	}
	lacks(t, plainText(s.Caveats()...), "by the threads' own stamps")
}
