// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// shareSlack is what housekeeping and the starvation bound may cost a share, in CPUs.
const shareSlack = 0.15

// One critical thread keeps one CPU of a two-CPU fence busy; background wants
// everything. What it gets is what the lending policy says.
func TestLending(t *testing.T) {
	requireVirtualTime(t)
	cpus := readTopology(t)
	if len(cpus) != 4 || cpus[0].Core == cpus[1].Core {
		t.Skip("needs 4 cores")
	}
	s := attach(t, Config{})
	pod, low := testCgroup(t, "pod"), testCgroup(t, "low")
	spinners(t, pod, 1, -1)
	spinners(t, low, 8, -1)
	for _, c := range []struct {
		lend policy.Lend
		want float64
	}{
		{policy.LendPerCore, 3},
		{policy.LendLanding, 2},
		{policy.LendWholeLayer, 2},
	} {
		t.Run(c.lend.String(), func(t *testing.T) {
			plan := policy.Plan{Lend: c.lend, Groups: []policy.Group{
				planGroup(t, pod, policy.Group{Tier: tier.Critical, Fence: []int{1, 2}}),
				planGroup(t, low, policy.Group{Tier: tier.Background}),
			}}
			if err := s.Apply(plan); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * settle)
			got := shares(t, exactTime, pod, low)
			t.Logf("critical %.3f CPUs, background %.3f", got[0], got[1])
			if got[0] < 1-shareSlack {
				t.Errorf("critical got %.3f CPUs of the one it wants", got[0])
			}
			if got[1] < c.want-shareSlack || got[1] > c.want+shareSlack {
				t.Errorf("background got %.3f CPUs, want %.0f", got[1], c.want)
			}
		})
	}
	stillAttached(t, s)
}

// A thread that found its fence full comes back when there is room, without
// ever having slept.
func TestReturnsToFence(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	pod, low := testCgroup(t, "pod"), testCgroup(t, "low")
	fence := []int{1, 2}
	apply(t, s,
		planGroup(t, pod, policy.Group{Tier: tier.Critical, Fence: fence}),
		planGroup(t, low, policy.Group{Tier: tier.Background}))
	spinners(t, low, 8, -1)
	var threads []*exec.Cmd
	for range len(fence) + 1 {
		threads = append(threads, spinners(t, pod, 1, -1))
	}
	time.Sleep(settle)
	onFence := func(cmd *exec.Cmd) bool { return slices.Contains(fence, busyCPU(t, cmd.Process.Pid)) }
	outside := slices.IndexFunc(threads, func(cmd *exec.Cmd) bool { return !onFence(cmd) })
	if outside < 0 {
		t.Fatalf("%d threads share a fence of %d CPUs while others run background", len(threads), len(fence))
	}
	for i, cmd := range threads {
		if i != outside {
			kill(cmd)
		}
	}
	for range 10 { // slices, each of which may end with its return
		time.Sleep(5 * time.Millisecond)
		if onFence(threads[outside]) {
			return
		}
	}
	t.Error("thread still runs outside of its fence, which is lent")
}

// busyCPU is the CPU of the thread of a process that used the most CPU time.
func busyCPU(t *testing.T, pid int) int {
	t.Helper()
	busiest := threadTime{cpu: -1, ticks: -1}
	for _, thread := range threadTimes(t, pid) {
		if thread.ticks > busiest.ticks {
			busiest = thread
		}
	}
	return busiest.cpu
}

// threadTime is the CPU on which a thread ran last, and for how long it did in all.
type threadTime struct{ cpu, ticks int }

// threadTimes are those of a process's threads.
func threadTimes(t *testing.T, pid int) (times []threadTime) {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			t.Fatal(err)
		}
		// proc(5), from the third field on: the name before it may hold spaces.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		ticks, _ := strconv.Atoi(f[14-3])
		cpu, _ := strconv.Atoi(f[39-3])
		times = append(times, threadTime{cpu, ticks})
	}
	return times
}

// An idle pod lends its whole fence, whatever the policy.
func TestIdleFenceIsLent(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	pod, low := testCgroup(t, "pod"), testCgroup(t, "low")
	nr := float64(len(readTopology(t)))
	spinners(t, low, 8, -1)
	for _, lend := range []policy.Lend{policy.LendPerCore, policy.LendLanding, policy.LendWholeLayer} {
		t.Run(lend.String(), func(t *testing.T) {
			plan := policy.Plan{Lend: lend, Groups: []policy.Group{
				planGroup(t, pod, policy.Group{Tier: tier.Critical, Fence: wholeCore(t, 1)}),
				planGroup(t, low, policy.Group{Tier: tier.Background}),
			}}
			if err := s.Apply(plan); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * settle)
			got := shares(t, exactTime, low)
			t.Logf("background %.3f CPUs", got[0])
			if got[0] < nr-2*shareSlack {
				t.Errorf("background got %.3f CPUs of %.0f", got[0], nr)
			}
		})
	}
}

// No background thread runs beside a busy critical one on a core; others may.
func TestSiblingOfCriticalStaysFree(t *testing.T) {
	requireVirtualTime(t)
	cpus := readTopology(t)
	if !hasSMT(cpus) {
		t.Skip("needs SMT: topology 1s2c2t")
	}
	s := attach(t, Config{})
	pod := testCgroup(t, "pod")
	spinners(t, pod, 1, 0)
	for _, c := range []struct {
		tier tier.Tier
		want float64
	}{
		{tier.Background, float64(len(cpus) - 2)},
		{tier.Standard, float64(len(cpus) - 1)},
	} {
		t.Run(c.tier.String(), func(t *testing.T) {
			low := testCgroup(t, c.tier.String())
			apply(t, s,
				planGroup(t, pod, policy.Group{Tier: tier.Critical}),
				planGroup(t, low, policy.Group{Tier: c.tier}))
			spinners(t, low, 8, -1)
			time.Sleep(2 * settle)
			got := shares(t, exactTime, pod, low)
			t.Logf("critical %.3f CPUs, %s %.3f", got[0], filepath.Base(low), got[1])
			if got[1] < c.want-shareSlack || got[1] > c.want+shareSlack {
				t.Errorf("%s got %.3f CPUs, want %.0f", filepath.Base(low), got[1], c.want)
			}
		})
	}
	stillAttached(t, s)
}

// The only idle CPU is beside a critical thread on its core. A critical thread that wakes does
// not take half a core while background has a whole one.
func TestCriticalThreadsKeepApart(t *testing.T) {
	requireVirtualTime(t)
	if !hasSMT(readTopology(t)) {
		t.Skip("needs SMT: topology 1s2c2t")
	}
	s := attach(t, Config{})
	computes, wakes, low := testCgroup(t, "computes"), testCgroup(t, "wakes"), testCgroup(t, "low")
	apply(t, s,
		planGroup(t, computes, policy.Group{Tier: tier.Critical}),
		planGroup(t, wakes, policy.Group{Tier: tier.Critical}),
		planGroup(t, low, policy.Group{Tier: tier.Background}))
	spinners(t, computes, 1, anyCPU)
	spinners(t, low, 8, anyCPU)
	nappers(t, wakes, 1)
	time.Sleep(settle)
	got := shares(t, exactTime, computes, wakes, low)
	t.Logf("computes %.3f CPUs, wakes %.3f, background %.3f", got[0], got[1], got[2])
	// It gives up both threads of its core to the one that wakes.
	if left := 2 * (1 - got[1]); got[2] > left+shareSlack || got[2] < left-shareSlack {
		t.Errorf("background got %.3f CPUs, want %.3f", got[2], left)
	}
	stillAttached(t, s)
}

func hasSMT(cpus []topology.CPU) bool {
	seen := make(map[int]bool)
	for _, c := range cpus {
		if seen[c.Core] {
			return true
		}
		seen[c.Core] = true
	}
	return false
}

// wholeCore lists the CPUs of a core.
func wholeCore(t *testing.T, core int) (ids []int) {
	t.Helper()
	for _, c := range readTopology(t) {
		if c.Core == core {
			ids = append(ids, c.ID)
		}
	}
	return ids
}
