// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// Critical threads saturate every CPU; every thread of every other tier still
// runs within the bound, bound to a CPU or not. A guest whose vCPUs wait for a
// busy host would only measure the host: the test needs virtual time.
func TestNobodyStarves(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	cpus := len(readTopology(t))
	critical := testCgroup(t, "critical")
	groups := []policy.Group{planGroup(t, critical, policy.Group{Tier: tier.Critical})}
	var hogs []*exec.Cmd
	for _, rank := range []tier.Tier{tier.System, tier.Standard, tier.Background} {
		dir := testCgroup(t, rank.String())
		groups = append(groups, planGroup(t, dir, policy.Group{Tier: rank}))
		hogs = append(hogs, spinners(t, dir, cpus, everyCPU), spinners(t, dir, 2, anyCPU))
	}
	spinners(t, critical, 2*cpus, anyCPU)
	apply(t, s, groups...)
	time.Sleep(settle)
	before := runTimes(t, hogs)
	got := shares(t, shareTime, critical)
	expectProgress(t, before, runTimes(t, hogs))
	t.Logf("critical %.2f CPUs of %d", got[0], cpus)
	if got[0] < 0.8*float64(cpus) {
		t.Errorf("critical got %.2f CPUs of %d: the bound costs too much", got[0], cpus)
	}
	for rank, c := range readCounters(t, s) {
		t.Logf("%s: rescued %d, worst wait %s", tier.Tier(rank), c.Rescued, time.Duration(c.WorstWaitNs))
		if wait := time.Duration(c.WorstWaitNs); wait > WaitBound {
			t.Errorf("%s waited %s, the bound is %s", tier.Tier(rank), wait, WaitBound)
		}
		if tier.Tier(rank) != tier.Critical && c.Rescued == 0 {
			t.Errorf("%s was never rescued: the test saturates nothing", tier.Tier(rank))
		}
	}
	stillAttached(t, s)

	// Those that a CPU was about to rescue are not lost with it.
	before = runTimes(t, hogs)
	setOnline(t, cpus-1, "0")
	time.Sleep(shareTime)
	expectProgress(t, before, runTimes(t, hogs))
	setOnline(t, cpus-1, "1")
	stillAttached(t, s)
}

// Affinities name CPUs that are not there. Those that starve are spread over those that are.
func TestNobodyStarvesWhereCPUsAreMissing(t *testing.T) {
	requireVirtualTime(t)
	const processes, least = 8, 0.4 // of those that starve, on each of two CPUs
	const looks = 4                 // of one, chance is a tenth
	withoutCpusets(t)               // they know which CPUs are there
	cpus := len(readTopology(t))
	critical, low := testCgroup(t, "critical"), testCgroup(t, "low")
	var hogs []*exec.Cmd
	for range processes {
		hogs = append(hogs, spinners(t, low, 8, anyCPU))
	}
	time.Sleep(shareTime) // until all of them have begun
	for cpu := 2; cpu < cpus; cpu++ {
		setOnline(t, cpu, "0")
		defer setOnline(t, cpu, "1")
	}
	spinners(t, critical, 4, anyCPU)
	s := attach(t, Config{})
	apply(t, s,
		planGroup(t, critical, policy.Group{Tier: tier.Critical}),
		planGroup(t, low, policy.Group{Tier: tier.Background}))
	var on [2]float64
	for range looks {
		time.Sleep(WaitBound) // each thread has been rescued since
		for _, hog := range hogs {
			for _, thread := range threadTimes(t, hog.Process.Pid) {
				if thread.ticks > 0 && thread.cpu < len(on) {
					on[thread.cpu]++
				}
			}
		}
	}
	rescued := readCounters(t, s)[tier.Background].Rescued
	t.Logf("rescued %d times; on CPU 0 %v, on CPU 1 %v", rescued, on[0], on[1])
	if all := on[0] + on[1]; rescued == 0 || all < looks*processes*8 {
		t.Errorf("%v threads were rescued %d times: the test shows nothing", all, rescued)
	}
	for cpu, n := range on {
		if n < least*(on[0]+on[1]) {
			t.Errorf("%v of %v threads were rescued by CPU %d", n, on[0]+on[1], cpu)
		}
	}
	stillAttached(t, s)
}

// A critical thread computes on each core, and the cores' other threads stay idle beside it.
// Who is rescued there gets its slice, and is not sent away as soon as it begins: it may hold
// what others wait for.
func TestRescuedThreadGetsSomewhereBesideCritical(t *testing.T) {
	requireVirtualTime(t)
	cpus := readTopology(t)
	if !hasSMT(cpus) {
		t.Skip("needs SMT: topology 1s2c2t")
	}
	s := attach(t, Config{})
	pod, low := testCgroup(t, "pod"), testCgroup(t, "low")
	hogs := []*exec.Cmd{spinners(t, low, 4, anyCPU)}
	time.Sleep(settle)
	for core := 0; len(wholeCore(t, core)) > 0; core++ {
		spinners(t, pod, 1, wholeCore(t, core)[0])
	}
	apply(t, s,
		planGroup(t, pod, policy.Group{Tier: tier.Critical}),
		planGroup(t, low, policy.Group{Tier: tier.Background}))
	time.Sleep(settle)
	before := runTimes(t, hogs)
	time.Sleep(shareTime)
	after := runTimes(t, hogs)
	if len(before) == 0 {
		t.Fatal("no background thread ran before there was critical work: the test shows nothing")
	}
	const least = 2 * time.Millisecond // in 2 s: a rescue owes one, within each second
	for thread := range before {
		ran := time.Duration(after[thread] - before[thread])
		t.Logf("%s ran for %s", thread, ran)
		if ran < least {
			t.Errorf("background thread %s ran for %s in %s, want at least %s", thread, ran, shareTime, least)
		}
	}
	stillAttached(t, s)
}

// By its weight a pod's turn comes later than the rescue lets anybody wait. Out of turn its
// threads are served, but critical ones that fill the other CPUs do not wait for them.
func TestRescueOfALightPodHoldsNobodyUp(t *testing.T) {
	requireVirtualTime(t)
	for _, c := range []struct {
		name                   string
		cpus                   string // of all pods
		critical, light, heavy int    // threads
	}{
		{"anywhere", "0-3", 8, 8, 6},
		// As those without CPUs of their own beside one with (Kubernetes' static CPU manager).
		{"some CPUs", "0-2", 6, 8, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			rescueHoldsNobodyUp(t, c.cpus, c.critical, c.light, c.heavy)
		})
	}
}

func rescueHoldsNobodyUp(t *testing.T, cpus string, stints, lights, heavies int) {
	// Above what preemptions take here (47 to 108 µs by seed), far below the slice of 1 ms
	// that a rescue may owe.
	const longest = 250 * time.Microsecond
	s := attach(t, Config{})
	pod, light, heavy := podOnCPUs(t, "pod", 100, cpus), podOnCPUs(t, "light", 100, cpus), podOnCPUs(t, "heavy", 10000, cpus)
	apply(t, s,
		planGroup(t, pod, policy.Group{Tier: tier.Critical}),
		planGroup(t, light, policy.Group{Tier: tier.Background}),
		planGroup(t, heavy, policy.Group{Tier: tier.Background}))
	bareSpinners(t, light, lights)
	bareSpinners(t, heavy, heavies)
	start(t, pod, "stint", fmt.Sprintf("%s=%d", threadsEnv, stints))
	time.Sleep(settle)
	probe, err := s.Measure()
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	before := readCounters(t, s)[tier.Background].Rescued
	time.Sleep(2 * time.Second)
	critical := readProbe(t, probe).Tiers[tier.Critical]
	rescued := readCounters(t, s)[tier.Background]
	t.Logf("%d rescued, worst wait %s; %d critical wakeups, inversion %s, at most %s", rescued.Rescued-before,
		time.Duration(rescued.WorstWaitNs), critical.WakeupDelay.Count(), critical.Inversion, critical.InversionMax)
	if rescued.Rescued == before {
		t.Error("nobody was rescued: the test shows nothing")
	}
	if wait := time.Duration(rescued.WorstWaitNs); wait > WaitBound {
		t.Errorf("background waited %s, the bound is %s", wait, WaitBound)
	}
	if critical.InversionMax > longest {
		t.Errorf("background ran for %s while a critical thread waited, want at most %s", critical.InversionMax, longest)
	}
	stillAttached(t, s)
}

func expectProgress(t *testing.T, before, after map[string]uint64) {
	t.Helper()
	for thread, ran := range after {
		if ran == before[thread] {
			t.Errorf("thread %s did not run for %s", thread, shareTime)
		}
	}
}

// runTimes returns how long each spinning thread has run, by its path in /proc.
// Threads of the runtime that never spun are left out.
func runTimes(t *testing.T, processes []*exec.Cmd) map[string]uint64 {
	t.Helper()
	const spun = uint64(5 * time.Millisecond) // more than starting takes
	times := make(map[string]uint64)
	for _, p := range processes {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			var ran uint64
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscan(string(text), &ran); err != nil {
				t.Fatalf("read %s: %v", file, err)
			}
			if ran > spun {
				times[file] = ran
			}
		}
	}
	return times
}

// readCounters sums the scheduler's counters over the CPUs.
func readCounters(t *testing.T, s *Scheduler) (sum [tier.Count]schedTemperTierCounters) {
	t.Helper()
	for i := range sum {
		var perCPU []schedTemperTierCounters
		if err := s.maps["tier_counters"].Lookup(uint32(i), &perCPU); err != nil {
			t.Fatal(err)
		}
		for _, c := range perCPU {
			sum[i].Preemptions += c.Preemptions
			sum[i].Preempted += c.Preempted
			sum[i].Rescued += c.Rescued
			sum[i].WorstWaitNs = max(sum[i].WorstWaitNs, c.WorstWaitNs)
		}
	}
	return sum
}
