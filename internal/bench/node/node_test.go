// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/work"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// cgroups is a node that has every cgroup.
type cgroups struct{}

func (cgroups) ID(path string) (uint64, error) { return uint64(len(path)), nil }

func ladder(t *testing.T) bench.Scenario {
	t.Helper()
	s, err := scenarios.Find("memcached-ladder")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPlanIsAccepted(t *testing.T) {
	var machine topology.Topology
	for i := range 4 {
		machine.CPUs = append(machine.CPUs, topology.CPU{ID: i, Core: i, Online: true})
	}
	n := &node{spec: Spec{Scenario: ladder(t)}}
	var err error
	if n.layout, err = layOut(n.spec.Scenario, machine); err != nil {
		t.Fatal(err)
	}
	plan, err := config.Parse("plan.yaml", []byte(n.plan()), config.Node{Topology: machine, Cgroups: cgroups{}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) policy.Group {
		i := slices.IndexFunc(plan.Groups, func(g policy.Group) bool { return g.Cgroup == path })
		if i < 0 {
			t.Fatalf("no group for %s", path)
		}
		return plan.Groups[i]
	}
	if g := at(critical); g.Tier != tier.Critical || !slices.Equal(g.Fence, []int{0, 1}) || g.NotFenced != "" {
		t.Errorf("critical pod: %+v", g)
	}
	if g := at(bench.BestEffort); g.Tier != tier.Background || !g.EachChild {
		t.Errorf("background pods: %+v", g)
	}
	if g := at(kubepods); g.Tier != tier.Standard {
		t.Errorf("other pods: %+v", g)
	}
}

func TestLedgerIsWhatHappenedBetweenTwoReadings(t *testing.T) {
	const ms = time.Millisecond
	before := reading{at: 500 * ms, critical: 10 * ms, background: 100 * ms, instrument: 50 * ms, slice: 70 * ms, kernel: 5 * ms, busy: 185 * ms}
	after := reading{at: 1500 * ms, critical: 310 * ms, background: 2600 * ms, instrument: 1050 * ms, slice: 1090 * ms, kernel: 15 * ms, busy: 4015 * ms}
	l := (&counters{layout: layout{all: []int{0, 1, 2, 3}, pods: []int{0, 1, 2}}}).ledger(before, after)
	want := bench.Ledger{
		Length: 1000 * ms, CPUs: 4, PodCPUs: 3, Critical: 300 * ms, Background: 2500 * ms, Instrument: 1000 * ms,
		System: 30 * ms, Idle: 170 * ms,
	}
	if l != want {
		t.Errorf("got  %+v\nwant %+v", l, want)
	}
	if e := l.Error(); e > 1e-9 || e < -1e-9 {
		t.Errorf("the parts are off by %v", e)
	}
}

func TestParseUsage(t *testing.T) {
	got, err := parseUsage("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n")
	if err != nil || got != 1500*time.Microsecond {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "usage_usec many\n", "user_usec 1\n"} {
		if _, err := parseUsage(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestParseBusy(t *testing.T) {
	const text = `version 17
timestamp 4294892613
cpu0 0 0 0 0 0 0 451352528 168831505 621
domain0 MC f 0 0 0 0 0 0 0 0 0 0
cpu1 0 0 0 0 0 0 334546145 82816573 227
`
	got, err := parseBusy(text)
	if err != nil || got != 785898673 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseBusy("version 99\n"); err == nil {
		t.Error("a file of another form was accepted")
	}
}

func TestParseRunTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"123 45 6\n": 123, "": 0, "x 1 2": 0} {
		if got := parseRunTime(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// On a machine with other work, /tmp is others' too.
func TestARunsFilesAreItsOwnAndGoWithIt(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	n := &node{spec: Spec{Scenario: ladder(t)}}
	if err := errors.Join(n.makeDir(), n.startScheduler(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{n.spinner, n.planFile()} {
		if _, err := os.Stat(file); err != nil || filepath.Dir(filepath.Dir(file)) != tmp {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRunRefusesWhatIsNoScenario(t *testing.T) {
	var out strings.Builder
	if err := Run(t.Context(), Spec{CPUs: 4}, &out); err == nil || out.Len() > 0 {
		t.Errorf("an empty scenario: error %v, said %q", err, out.String())
	}
}

// cpus are those of sockets x cores x threads, numbered as QEMU does.
func cpus(cores, threads int) topology.Topology {
	var top topology.Topology
	for id := range cores * threads {
		top.CPUs = append(top.CPUs, topology.CPU{ID: id, Core: id / threads, Online: true})
	}
	return top
}

func TestLayOut(t *testing.T) {
	for name, tc := range map[string]struct {
		top        topology.Topology
		instrument bool
		request    int
		fence      string
		rest       string
	}{
		"client's CPU":           {cpus(4, 1), true, 2000, "0-1", "2"},
		"pods on all":            {cpus(4, 1), false, 2000, "0-1", "2-3"},
		"whole cores":            {cpus(2, 2), false, 1000, "0-1", "2-3"},
		"client on a sibling":    {cpus(2, 2), true, 2000, "0-1", "2"},
		"a core for the rest":    {cpus(4, 1), false, 9000, "0-2", "3"},
		"none for less than one": {cpus(4, 1), false, 500, "", "0-3"},
	} {
		s := bench.Scenario{Instrument: tc.instrument, Primary: bench.Primary{RequestMilliCPU: tc.request}}
		l, err := layOut(s, tc.top)
		if err != nil {
			t.Fatal(err)
		}
		if f, r := topology.FormatList(l.fence), topology.FormatList(l.rest); f != tc.fence || r != tc.rest || l.last != len(tc.top.CPUs)-1 {
			t.Errorf("%s: fence %s, rest %s, last %d; want %s and %s", name, f, r, l.last, tc.fence, tc.rest)
		}
	}
	if _, err := layOut(bench.Scenario{}, cpus(1, 1)); err == nil {
		t.Error("a node of one CPU was accepted")
	}
}

func TestPlanNamesWhatTheArmAndTheScenarioAdd(t *testing.T) {
	s := bench.Scenario{Primary: bench.Primary{RequestMilliCPU: 1000, Pods: []bench.PodSpec{
		{Name: "a", Tier: "standard", Weight: 100, Threads: 1}, {Name: "b", Tier: "background", Weight: 1, Threads: 1},
	}}}
	n := &node{spec: Spec{Scenario: s, Arm: bench.Arm{Lend: "landing"}, Root: "/temper-lab"}}
	n.layout, _ = layOut(s, cpus(4, 1))
	text := n.plan()
	plan, err := config.Parse("plan.yaml", []byte(text), config.Node{Topology: cpus(4, 1), Cgroups: cgroups{}})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if plan.Lend.String() != "landing" || len(plan.Groups) != 4 || !n.hasStandard() {
		t.Errorf("lend %s, %d groups", plan.Lend, len(plan.Groups))
	}
	for _, g := range plan.Groups {
		if !strings.HasPrefix(g.Cgroup, "/temper-lab/") {
			t.Errorf("group %s is outside of the run's root", g.Cgroup)
		}
	}
}

// Every step of every scenario that measures itself has programs that work knows.
func TestEveryPointHasItsPrograms(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	known := []string{work.KindTimer, work.KindEventfd, work.KindBurst, work.KindPhases, work.KindPipe, work.KindGaps, work.KindCommand, work.KindRequests}
	for _, s := range all {
		if s.KindOf().Server || s.KindOf().Agent {
			continue
		}
		n := &node{spec: Spec{Scenario: s}, topology: cpus(4, 1), tree: &tree{}}
		for _, step := range s.Steps() {
			programs, err := (&selfMeasured{node: n}).programs(step)
			if err != nil || len(programs) == 0 && s.Primary.Kind != "weights" {
				t.Errorf("%s, point %q: %d programs, %v", s.Name, step.Point, len(programs), err)
			}
			for _, p := range programs {
				if !slices.Contains(known, p.spec.Kind) || p.spec.Window != s.Load.Window {
					t.Errorf("%s, point %q: %+v", s.Name, step.Point, p.spec)
				}
			}
		}
	}
	n := &node{spec: Spec{Scenario: bench.Scenario{Primary: bench.Primary{Kind: "pipe"}}}, topology: cpus(4, 1)}
	if _, err := (&selfMeasured{node: n}).programs(bench.Step{Point: "both"}); err == nil {
		t.Error("a point that pipe does not know was accepted")
	}
}

func TestDelaysKeepTheirBucketsAndTheLongest(t *testing.T) {
	h := sched.Histogram{Counts: make([]uint64, 200)}
	h.Counts[10], h.Counts[40] = 5, 2
	low, high := sched.BucketBounds(40)
	h.Max = high - 1
	got := delayHist(h)
	if got.Count() != 7 || got.Max() < h.Max || got.Quantile(.8) < low {
		t.Errorf("%d delays, longest %v, p80 %v; want 7, %v and at least %v", got.Count(), got.Max(), got.Quantile(.8), h.Max, low)
	}
	if delayHist(sched.Histogram{Counts: make([]uint64, 200)}) != nil {
		t.Error("no delay made a histogram")
	}
}

func TestStarvedPodsAreJoined(t *testing.T) {
	one := func(d time.Duration) bench.Result {
		h := bench.NewHist()
		h.Record(d)
		return bench.Result{Latency: h, Requests: 1, Ops: 3, Slowest: []bench.Slow{{Latency: d}}, Values: map[string]float64{"busy_ns": float64(d)}}
	}
	r := join(join(bench.Result{}, "a", one(1000)), "b", one(2000))
	r = join(r, "never waited", bench.Result{Ops: 1})
	if r.Requests != 2 || r.Ops != 7 || r.Latency.Count() != 2 || r.Parts["a"].Max() >= r.Parts["b"].Max() || len(r.Parts) != 2 || r.Values["b_busy_ns"] != 2000 {
		t.Errorf("%+v", r)
	}
	if len(r.Slowest) != 2 || r.Slowest[0].Latency != 2000 {
		t.Errorf("slowest %v, want the longest first", r.Slowest)
	}
}

func TestDensitiesOfAPointHaveTheSameLoad(t *testing.T) {
	s := bench.Scenario{
		MaxRate: 100, Points: []bench.Point{{Name: "low", Rate: 1}, {Name: "high", Share: .8}}, Densities: []int{0, 4, 16, 4, 0},
	}
	var got []uint64
	for _, step := range s.Steps() {
		got = append(got, Spec{Scenario: s}.seedAt(step))
	}
	if want := []uint64{0, 0, 0, 1, 1, 256, 256, 256, 257, 257}; !slices.Equal(got, want) {
		t.Errorf("loads %v, want %v", got, want)
	}
}
