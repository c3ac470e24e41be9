// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// podOnCPUs is a new cgroup with a weight and a cpuset.
func podOnCPUs(t *testing.T, name string, weight int, cpus string) string {
	t.Helper()
	dir := testCgroup(t, name)
	// From the root on: a controller is there where the parent has it.
	parent := "/sys/fs/cgroup"
	write(t, parent, "cgroup.subtree_control", "+cpuset")
	for part := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(filepath.Dir(dir), parent), "/"), "/") {
		parent = filepath.Join(parent, part)
		write(t, parent, "cgroup.subtree_control", "+cpuset")
	}
	write(t, dir, "cpu.weight", strconv.Itoa(weight))
	write(t, dir, "cpuset.cpus", cpus)
	return dir
}

// applyStandard puts the pods into the tier standard.
func applyStandard(t *testing.T, s *Scheduler, pods ...string) {
	t.Helper()
	var groups []policy.Group
	for _, dir := range pods {
		groups = append(groups, planGroup(t, dir, policy.Group{Tier: tier.Standard}))
	}
	apply(t, s, groups...)
}

// wakesWithin runs n timed wakeups in a cgroup, whose p99 may be limit.
func wakesWithin(t *testing.T, cgroup string, n int, limit time.Duration) {
	t.Helper()
	late := delays(t, cgroup, n, anyCPU)
	t.Logf("p50 %s, p99 %s, longest %s", quantile(late, 0.5), quantile(late, 0.99), late[len(late)-1])
	if got := quantile(late, 0.99); got > limit {
		t.Errorf("p99 %s, want at most %s", got, limit)
	}
}

// A pod with CPUs of its own, as Kubernetes' static CPU manager gives them: its clock
// goes at a rate of its own, and is none for those who share the others.
func TestWeightsBesideOwnCPUs(t *testing.T) {
	requireVirtualTime(t)
	for _, c := range []struct {
		name                string
		apart, apartWeight  int // pods on CPU 3, with two threads each
		threads, newThreads int // of the pod that is there, and of the one that comes
	}{
		{"light pod", 1, 100, 3, 16},
		// Those two meet, and their clock is slow: the pod elsewhere is far ahead of it.
		{"heavy pods", 2, 1000, 8, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			weighBesideOwnCPUs(t, c.apart, c.apartWeight, c.threads, c.newThreads)
		})
	}
}

func weighBesideOwnCPUs(t *testing.T, apart, apartWeight, threads, newThreads int) {
	s := attach(t, Config{})
	others := make([]string, apart)
	for i := range others {
		others[i] = podOnCPUs(t, "apart"+strconv.Itoa(i), apartWeight, "3")
	}
	twice, once := podOnCPUs(t, "twice", 400, "0-2"), podOnCPUs(t, "once", 200, "0-2")
	applyStandard(t, s, append(others, twice, once)...)
	// It counts by the tier's clock from now on, and is behind it when it has work.
	sleeper(t, once)
	for _, dir := range others {
		bareSpinners(t, dir, 2)
	}
	bareSpinners(t, twice, threads)

	// Nobody queues but those apart, and their own. Whoever comes then finds a pod
	// that ran alone on its CPUs, which owes nothing for it.
	time.Sleep(2 * time.Second)
	bareSpinners(t, once, newThreads)
	for _, span := range []struct {
		name      string
		long      time.Duration
		low, high float64
	}{
		{"who comes, for a quarter of a second", shareTime / 4, 1.5, 3},
		{"in the second that a pod is watched", shareTime, 1.5, 3},
		{"from then on", shareTime, 2 * (1 - equalSlack), 2 * (1 + equalSlack)},
	} {
		got := shares(t, span.long, twice, once)
		ratio := got[0] / got[1]
		t.Logf("%s: %.3f and %.3f CPUs: %.3f, want 2", span.name, got[0], got[1], ratio)
		if ratio < span.low || ratio > span.high {
			t.Errorf("%s: ratio %.3f, want %.2f to %.2f", span.name, ratio, span.low, span.high)
		}
	}
	// The two take turns, though a line of threads that may not run there is before them.
	c := readCounters(t, s)[tier.Standard]
	t.Logf("longest wait %s", time.Duration(c.WorstWaitNs))
	if c.Rescued > 0 {
		t.Errorf("%d threads had to be rescued", c.Rescued)
	}
	stillAttached(t, s)
}

// A pod with a CPU of its own, whose clock is slower than that of those who share the
// others, has saved nothing by that when somebody comes to its CPU.
func TestAloneSavesNothing(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	first, second := podOnCPUs(t, "first", 1000, "3"), podOnCPUs(t, "second", 1000, "3")
	light, other := podOnCPUs(t, "light", 100, "0-2"), podOnCPUs(t, "other", 100, "0-2")
	applyStandard(t, s, first, second, light, other)
	bareSpinners(t, first, 1)
	bareSpinners(t, light, 4)
	bareSpinners(t, other, 4)
	time.Sleep(3 * time.Second)

	bareSpinners(t, second, 1)
	got := shares(t, shareTime/4, first, second)
	t.Logf("%.3f and %.3f CPUs", got[0], got[1])
	if ratio := got[0] / got[1]; ratio < 0.75 || ratio > 1.33 {
		t.Errorf("ratio %.3f, want 1", ratio)
	}
	if c := readCounters(t, s)[tier.Standard]; c.Rescued > 0 {
		t.Errorf("%d threads had to be rescued", c.Rescued)
	}
	stillAttached(t, s)
}

// A pod of two containers, as kubelet's static CPU manager places them: one has a CPU of
// its own, the other one shares the rest with other pods. It answers though the first
// computes all the time.
func TestSidecarOfOwnCPU(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	app, sidecar := podOnCPUs(t, "pod/app", 100, "3"), podOnCPUs(t, "pod/sidecar", 100, "0-2")
	// Heavy: their clock is slower than that of who computes alone.
	one, another := podOnCPUs(t, "one", 400, "0-2"), podOnCPUs(t, "another", 400, "0-2")
	applyStandard(t, s, filepath.Dir(app), one, another)
	bareSpinners(t, one, 4)
	bareSpinners(t, another, 4)
	bareSpinners(t, app, 1)
	time.Sleep(time.Second)

	wakesWithin(t, sidecar, 400, 40*time.Millisecond) // eight slices
	if c := readCounters(t, s)[tier.Standard]; c.Rescued > 0 {
		t.Errorf("%d threads had to be rescued", c.Rescued)
	}
	stillAttached(t, s)
}

// The static CPU manager leaves a pool of CPUs to all other pods. One of them that uses
// little waits for no peer there, also while nobody but those on CPUs of their own queues.
func TestLightPeerInPool(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	apart := podOnCPUs(t, "apart", 100, "3")
	light, heavy := podOnCPUs(t, "light", 100, "0-2"), podOnCPUs(t, "heavy", 100, "0-2")
	applyStandard(t, s, apart, light, heavy)
	bareSpinners(t, apart, 2)
	bareSpinners(t, heavy, 3)
	time.Sleep(2 * time.Second)

	wakesWithin(t, light, 1000, 200*time.Microsecond)
	stillAttached(t, s)
}
