// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// noticeWithin is how soon a lost scheduler must show in State.
const noticeWithin = time.Second

func TestAdoptedByTheNextProcess(t *testing.T) {
	requireGuest(t)
	cfg := Config{DeadMan: 30 * time.Second}
	pod := testCgroup(t, "pod")
	first := attach(t, cfg)
	apply(t, first, planGroup(t, pod, policy.Group{Tier: tier.Critical, Fence: []int{1}}))
	before, err := first.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	second := attach(t, cfg)
	after, err := second.State()
	if err != nil {
		t.Fatal(err)
	}
	if !second.Adopted() || after.EnableSeq != before.EnableSeq || after.Generation != before.Generation {
		t.Errorf("adopted %v, before %+v, after %+v", second.Adopted(), before, after)
	}
	plan, err := second.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Groups) != 1 || plan.Groups[0].ID != cgroupID(t, pod) || len(plan.Groups[0].Fence) != 1 {
		t.Errorf("plan found: %+v", plan)
	}
	for id, want := range map[uint64]bool{plan.Groups[0].ID: true, plan.Groups[0].ID + 1<<40: false} {
		if has, err := second.Has(id); has != want || err != nil {
			t.Errorf("the plan has cgroup %d: %v, %v", id, has, err)
		}
	}

	cfg.DeadMan = time.Minute
	// One that only asks replaces nothing, and keeps nobody's dead-man away.
	ended, end := context.WithCancel(t.Context())
	end()
	alive, err := second.State()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(ended, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("asked in vain: %v", err)
	}
	if now, err := second.State(); err != nil || now.HeartbeatAge < alive.HeartbeatAge || now.EnableSeq != alive.EnableSeq {
		t.Errorf("after that: %v, %+v, before %+v", err, now, alive)
	}

	third := attach(t, cfg)
	replaced, err := third.State()
	if err != nil {
		t.Fatal(err)
	}
	if third.Adopted() || replaced.EnableSeq != before.EnableSeq+1 {
		t.Errorf("another configuration was adopted: %+v", replaced)
	}
}

// A build that pins more, less or other things is read as far as it can be,
// replaced and detached: no list of pins wedges the node.
func TestPinsOfAnotherBuild(t *testing.T) {
	requireGuest(t)
	swap := func(t *testing.T, s *Scheduler, name string, pin func(path string) error) {
		t.Helper()
		path := filepath.Join(s.pinDir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := pin(path); err != nil {
			t.Fatal(err)
		}
	}
	program := func(t *testing.T, s *Scheduler) func(string) error {
		t.Helper()
		p, err := s.programs["temper_apply"].Clone() // a handle is pinned once
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p.Pin
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *Scheduler)
		want   error // of State
	}{
		"a program more": {func(t *testing.T, s *Scheduler) { swap(t, s, "temper_later", program(t, s)) }, nil},
		"a program less": {func(t *testing.T, s *Scheduler) {
			swap(t, s, "temper_set_limit", func(string) error { return nil })
		}, ErrOtherBuild},
		"a program instead of a map": {func(t *testing.T, s *Scheduler) { swap(t, s, "exits", program(t, s)) }, ErrOtherBuild},
		"a map of another size": {func(t *testing.T, s *Scheduler) {
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 48, MaxEntries: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			swap(t, s, "controls", m.Pin)
		}, ErrOtherBuild},
	} {
		t.Run(name, func(t *testing.T) {
			first := attach(t, Config{})
			if err := first.maps[pinObject].Put(uint32(0), [32]byte{1}); err != nil {
				t.Fatal(err)
			}
			c.change(t, first)
			found, err := Open(first.pinDir)
			if err != nil {
				t.Fatal(err)
			}
			defer found.Close()
			if state, err := found.State(); !errors.Is(err, c.want) || !IsOurs(state.Ops) {
				t.Errorf("state %+v, %v; want %v", state, err, c.want)
			}
			if _, err := found.Counters(); !errors.Is(err, c.want) {
				t.Errorf("counters: %v, want %v", err, c.want)
			}
			next := attach(t, Config{})
			if state, err := next.State(); err != nil || next.Adopted() || !state.Attached {
				t.Errorf("the next one: adopted %v, %+v, %v", next.Adopted(), state, err)
			}
			c.change(t, next)
			found, err = Open(first.pinDir)
			if err != nil {
				t.Fatal(err)
			}
			if err := found.Detach(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDeadMan(t *testing.T) {
	requireGuest(t)
	const deadMan = 2 * time.Second
	s := attach(t, Config{DeadMan: deadMan})
	for range 10 {
		if err := s.Heartbeat(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(deadMan / 4)
	}
	stillAttached(t, s)
	state := awaitExit(t, s, deadMan+noticeWithin)
	if state.Exit.Reason != AgentStale {
		t.Errorf("exit %+v, want %s", state.Exit, AgentStale)
	}
}

func TestSysRq(t *testing.T) {
	requireGuest(t)
	s := attach(t, Config{})
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("S"), 0o200); err != nil {
		t.Fatal(err)
	}
	state := awaitExit(t, s, noticeWithin)
	if state.Exit.Reason != EjectedSysRq {
		t.Errorf("exit %+v, want %s", state.Exit, EjectedSysRq)
	}
	// The remains are cleared away by whoever attaches next.
	if next := attach(t, Config{}); next.Adopted() {
		t.Error("a dead scheduler was adopted")
	}
}

// awaitExit waits for the scheduler to end by itself.
func awaitExit(t *testing.T, s *Scheduler, within time.Duration) State {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		state, err := s.State()
		if err != nil {
			t.Fatal(err)
		}
		if state.Exit != nil {
			if state.Attached {
				t.Errorf("attached after its exit: %+v", state)
			}
			return state
		}
		if time.Now().After(deadline) {
			t.Fatalf("no exit within %s: %+v", within, state)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestForeignSchedulerIsLeftAlone(t *testing.T) {
	requireGuest(t)
	spec, err := prepare(Config{CPUs: readTopology(t)}, btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	value := spec.Maps["temper_ops"].Contents[0].Value.([]byte)
	copy(value[bytes.Index(value, []byte(Name+"\x00")):], "someone")
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer coll.Close()
	foreign, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps["temper_ops"]})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()

	_, err = Attach(t.Context(), Config{CPUs: readTopology(t)})
	refused, ok := errors.AsType[*Error](err)
	if !ok || refused.Reason != ForeignScheduler || !strings.Contains(err.Error(), "someone") {
		t.Errorf("attach beside another scheduler: %v", err)
	}
	state, err := ReadState("")
	if err != nil {
		t.Fatal(err)
	}
	if state.Kernel != "enabled" || state.Ops != "someone" || state.Attached {
		t.Errorf("the other scheduler: %+v", state)
	}
	if _, err := os.Stat(DefaultPinDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was left behind: %v", err)
	}
}

// A directory with pins of others is neither used nor removed.
func TestForeignPinsAreLeftAlone(t *testing.T) {
	requireGuest(t)
	dir := filepath.Join(filepath.Dir(DefaultPinDir), "others")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	pin := filepath.Join(dir, "theirs")
	if err := m.Pin(pin); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(t.Context(), Config{PinDir: dir, CPUs: readTopology(t)}); err == nil {
		t.Error("attached into a directory of others")
	}
	if _, err := Open(dir); err == nil {
		t.Error("opened a directory of others")
	}
	if _, err := os.Stat(pin); err != nil {
		t.Errorf("their pin: %v", err)
	}
}

// The documented privileges suffice, and each is needed.
func TestCapabilities(t *testing.T) {
	requireGuest(t)
	for _, c := range []struct {
		name string
		caps []uintptr
		want string
	}{
		{"both", []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}, "attached"},
		{"no CAP_PERFMON", []uintptr{unix.CAP_BPF}, string(MissingCapability)},
		{"no CAP_BPF", []uintptr{unix.CAP_PERFMON}, string(MissingCapability)},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), roleEnv+"=attach")
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Credential:  &syscall.Credential{Uid: 1000, Gid: 1000},
				AmbientCaps: c.caps,
			}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), c.want) {
				t.Errorf("%v: %s, want %s", err, out, c.want)
			}
		})
	}
}

// attachOnce is the role behind TestCapabilities: attach, say so, detach.
func attachOnce() string {
	topo, err := readCPUs()
	if err != nil {
		return err.Error()
	}
	s, err := Attach(context.Background(), Config{PinDir: filepath.Join(filepath.Dir(DefaultPinDir), "unprivileged"), CPUs: topo})
	if err != nil {
		return err.Error()
	}
	if err := s.Detach(); err != nil {
		return err.Error()
	}
	return "attached"
}

// TestPlanStorm applies the plans of ten seconds at 1,000 a second, as fast as this
// machine can: how fast that is depends on what else it does.
func TestPlanStorm(t *testing.T) {
	requireGuest(t)
	const n = 10_000
	s := attach(t, Config{})
	pods := []string{testCgroup(t, "a"), testCgroup(t, "b")}
	spinners(t, pods[0], 2, -1)
	spinners(t, pods[1], 2, -1)
	before, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	plans := [2][]policy.Group{
		{
			planGroup(t, pods[0], policy.Group{Tier: tier.Critical, Fence: []int{1}}),
			planGroup(t, pods[1], policy.Group{Tier: tier.Background}),
		}, {
			planGroup(t, pods[0], policy.Group{Tier: tier.Standard}),
			planGroup(t, pods[1], policy.Group{Tier: tier.Critical, Fence: []int{2}}),
		},
	}
	began := time.Now()
	for i := range n {
		apply(t, s, plans[i%2]...)
	}
	took := time.Since(began)
	t.Logf("%d plans in %s: %.0f a second", n, took, n/took.Seconds())
	after, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	if after.EnableSeq != before.EnableSeq || after.Generation != before.Generation+n {
		t.Errorf("before %+v, after %+v", before, after)
	}
	stillAttached(t, s)
}

// A writer that fails half way, or dies, leaves nothing that a later plan would hold, whatever
// another writer remembers of the slot.
func TestHalfWrittenPlanIsForgotten(t *testing.T) {
	requireGuest(t)
	s := attach(t, Config{})
	a, b := planGroup(t, testCgroup(t, "a"), policy.Group{Tier: tier.Standard}), planGroup(t, testCgroup(t, "b"), policy.Group{Tier: tier.Critical})
	for range 2 { // s knows both slots now
		apply(t, s, a)
	}
	other, err := Open(s.pinDir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	generation, err := other.plans.current()
	if err != nil {
		t.Fatal(err)
	}
	have, err := other.plans.read(generation + 1)
	if err != nil {
		t.Fatal(err)
	}
	want, err := compile(policy.Plan{Groups: []policy.Group{a, b}}, generation+1)
	if err != nil {
		t.Fatal(err)
	}
	want.fences[uint32(2*maxFences)] = schedTemperMask{} // beyond the map, after the groups
	if err := other.plans.write(uint32((generation+1)&1), have, want); err == nil {
		t.Fatal("the write did not fail: the test shows nothing")
	}
	for range 2 {
		apply(t, s, a)
		if found, err := s.plans.has(b.ID); err != nil || found {
			t.Errorf("the plan has what another writer left: %v, %v", found, err)
		}
	}
}

// A kernel whose BTF shows hidden arguments is named before a load is tried.
func TestHiddenArguments(t *testing.T) {
	requireGuest(t)
	kernel, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	if check := checkKfuncs(kernel); !check.OK {
		t.Errorf("a kernel that loads the object is refused: %+v", check)
	}
}
