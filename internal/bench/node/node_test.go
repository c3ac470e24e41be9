// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/policy"
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

func TestRunRefusesWhatIsNoScenario(t *testing.T) {
	var out strings.Builder
	if err := Run(t.Context(), Spec{CPUs: 4}, &out); err == nil || out.Len() > 0 {
		t.Errorf("an empty scenario: error %v, said %q", err, out.String())
	}
}
