// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/temper-sched/temper/internal/policy"
)

// pacedGate is a limit of 1.5 CPUs with every field another number.
func pacedGate() schedGate {
	var g schedGate
	g.Cgroup = 4711
	g.Limit.QuotaUs, g.Limit.PeriodUs, g.Limit.BurstUs = 150_000, 100_000, 30_000
	g.Waiting = 7
	c := &g.Counters
	c.UsedNs, c.DebtNs, c.Waits, c.WaitedNs, c.LongestWaitNs = 1, 2, 3, 4, 5
	c.PacedPeriods, c.PacedNs, c.LongestStopNs = 6, 8, 9
	return g
}

func TestLimitOf(t *testing.T) {
	g := pacedGate()
	want := LimitStats{
		ID: 4711, Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond, Burst: 30 * time.Millisecond,
		Used: 1, Debt: 2, Waiting: 7, Waits: 3, Waited: 4, LongestWait: 5, PacedPeriods: 6, Paced: 8, LongestStop: 9,
	}
	if diff := cmp.Diff(want, limitOf(&g)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := limitOf(&g).CPUs(); got != 1.5 {
		t.Errorf("%v CPUs, want 1.5", got)
	}
	var lifted schedGate
	if got := limitOf(&lifted).CPUs(); got != 0 {
		t.Errorf("a lifted limit is %v CPUs", got)
	}
}

// TestLimitOfCountsWhatGoesOn has a pod whose threads wait in turn, so that it
// never stops being paced.
func TestLimitOfCountsWhatGoesOn(t *testing.T) {
	g := pacedGate()
	g.Bucket.FilledAt = 5000
	g.PacedSince, g.StopSince = 1000, 4900
	if l := limitOf(&g); l.Paced != 8+4000 || l.LongestStop != 100 {
		t.Errorf("paced %d, longest stop %d; want 4008, 100", l.Paced, l.LongestStop)
	}
	g.StopSince = 4995
	if l := limitOf(&g); l.LongestStop != 9 {
		t.Errorf("a stop of 5 ns displaced one of 9: %d", l.LongestStop)
	}
	g.PacedSince = 6000 // by another CPU's clock
	if l := limitOf(&g); l.Paced != 8 {
		t.Errorf("time ran backwards: %d", l.Paced)
	}
}

// kernelMaps makes real maps of the object's definitions.
func kernelMaps(t *testing.T, names map[string]string) map[string]*ebpf.Map {
	t.Helper()
	requireBPF(t)
	spec, err := loadSched()
	if err != nil {
		t.Fatal(err)
	}
	maps := make(map[string]*ebpf.Map)
	for pin, name := range names {
		m, err := ebpf.NewMap(spec.Maps[name])
		if err != nil {
			t.Fatalf("create map %s: %v", name, err)
		}
		t.Cleanup(func() { m.Close() })
		maps[pin] = m
	}
	return maps
}

func TestLimits(t *testing.T) {
	s := &Scheduler{maps: kernelMaps(t, map[string]string{schedMapGates: schedMapGates})}
	if got, err := s.Limits(); err != nil || len(got) != 0 {
		t.Fatalf("no limits: %v, %v", got, err)
	}
	g := pacedGate()
	for slot, id := range map[uint32]uint64{1: 10, 7: 70, uint32(schedTemperLimitsTEMPER_MAX_GATES) - 1: 90} {
		g.Cgroup = id
		if err := s.maps[schedMapGates].Put(slot, &g); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Limits()
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, l := range got {
		ids = append(ids, l.ID)
		if l.CPUs() != 1.5 || l.Waits != 3 {
			t.Errorf("limit of cgroup %d: %+v", l.ID, l)
		}
	}
	slices.Sort(ids)
	if diff := cmp.Diff([]uint64{10, 70, 90}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLimitsNotHeld(t *testing.T) {
	s := &Scheduler{maps: kernelMaps(t, map[string]string{pinGlobals: sectionGlobals})}
	if got, err := s.LimitsNotHeld(); err != nil || got != 0 {
		t.Fatalf("at first: %d, %v", got, err)
	}
	spec, err := loadSched()
	if err != nil {
		t.Fatal(err)
	}
	globals := make([]byte, spec.Maps[sectionGlobals].ValueSize)
	for _, v := range spec.Maps[sectionGlobals].Value.(*btf.Datasec).Vars {
		// Every variable another number, so that no neighbour is read.
		if v.Size == 8 {
			binary.LittleEndian.PutUint64(globals[v.Offset:], 1000+uint64(v.Offset))
		}
		if v.Type.TypeName() == "limits_unheld" {
			binary.LittleEndian.PutUint64(globals[v.Offset:], 42)
		}
	}
	if err := s.maps[pinGlobals].Put(uint32(0), globals); err != nil {
		t.Fatal(err)
	}
	if got, err := s.LimitsNotHeld(); err != nil || got != 42 {
		t.Errorf("%d, %v; want 42", got, err)
	}
	small, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	other := &Scheduler{maps: map[string]*ebpf.Map{pinGlobals: small}}
	if _, err := other.LimitsNotHeld(); !errors.Is(err, ErrOtherBuild) {
		t.Errorf("globals of another build: %v", err)
	}
}

// What user space runs, and only that, is pinned.
func TestSyscallProgramsArePinned(t *testing.T) {
	spec, err := loadSched()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for name, p := range spec.Programs {
		if p.Type == ebpf.Syscall {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(programs))); diff != "" {
		t.Errorf("programs of the object (-) and those that are pinned (+):\n%s", diff)
	}
}

func TestSetLimitWithoutTheProgram(t *testing.T) {
	s := &Scheduler{}
	err := s.SetLimit(policy.Limit{ID: 12, QuotaUs: 1000, PeriodUs: 1000})
	if err == nil || !strings.Contains(err.Error(), "set limit of cgroup 12: this build has no temper_set_limit") {
		t.Errorf("error %v", err)
	}
	other := &Scheduler{missing: "gates"}
	if err := other.SetLimit(policy.Limit{}); !errors.Is(err, ErrOtherBuild) {
		t.Errorf("of another build: %v", err)
	}
}
