// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// soakTime is how long the soak lasts: TEMPER_SOAK=10m for the whole one.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("TEMPER_SOAK")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSoak puts everything on the node that ejected schedulers before: forks,
// random affinities, hogs bound to every CPU, and critical work that saturates
// it. Nothing may eject Temper and, in virtual time, nobody may wait beyond the bound.
func TestSoak(t *testing.T) {
	requireGuest(t)
	if _, err := exec.LookPath("stress-ng"); err != nil {
		t.Skip("needs stress-ng: run it by make guest")
	}
	lasts := soakTime(t)
	s := attach(t, Config{})
	before, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	chaos, critical := testCgroup(t, "chaos"), testCgroup(t, "critical")
	groups := []policy.Group{
		planGroup(t, chaos, policy.Group{Tier: tier.Background}),
		planGroup(t, critical, policy.Group{Tier: tier.Critical}),
	}
	cpus := len(readTopology(t))
	for cpu := range cpus {
		hog := testCgroup(t, fmt.Sprintf("hog%d", cpu))
		groups = append(groups, planGroup(t, hog, policy.Group{Tier: tier.Standard}))
		spinners(t, hog, 1, cpu)
	}
	apply(t, s, groups...)
	ctx, cancel := context.WithTimeout(t.Context(), lasts+time.Minute)
	defer cancel()
	stress := stressNG(ctx, t, chaos, lasts)
	for range cpus {
		spinners(t, critical, 1, -1)
	}
	began, told := time.Now(), time.Now()
	for time.Since(began) < lasts {
		scatter(t, chaos, cpus)
		stillAttached(t, s)
		if time.Since(told) > 10*time.Minute {
			told = time.Now()
			t.Logf("attached for %s of %s", time.Since(began).Round(time.Second), lasts)
		}
		time.Sleep(100 * time.Millisecond)
	}
	kill(stress)
	after, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	if after.EnableSeq != before.EnableSeq {
		t.Errorf("attached anew: enable_seq %d, was %d", after.EnableSeq, before.EnableSeq)
	}
	stillAttached(t, s)
	for rank, c := range readCounters(t, s) {
		wait := time.Duration(c.WorstWaitNs)
		t.Logf("%s: rescued %d, preempted %d, worst wait %s", tier.Tier(rank), c.Rescued, c.Preempted, wait)
		if inVirtualTime() && wait > WaitBound {
			t.Errorf("%s waited %s, the bound is %s", tier.Tier(rank), wait, WaitBound)
		}
	}
}

func stressNG(ctx context.Context, t *testing.T, cgroup string, lasts time.Duration) *exec.Cmd {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.CommandContext(ctx, "stress-ng", "--aggressive", "--cpu", "2", "--fork", "2", "--affinity", "1",
		"--switch", "1", "--futex", "1", "--mmap", "1", "--mmap-bytes", "16M", "--timeout", fmt.Sprintf("%ds", int(lasts.Seconds())+60))
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		write(t, cgroup, "cgroup.kill", "1")
		_ = cmd.Wait()
	})
	return cmd
}

// scatter gives every process of a cgroup an affinity of its own. Those that
// exit meanwhile are no error.
func scatter(t *testing.T, cgroup string, cpus int) {
	t.Helper()
	f, err := os.Open(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		var pid int
		if _, err := fmt.Fscan(f, &pid); err != nil {
			return
		}
		var set unix.CPUSet
		set.Set(rand.IntN(cpus))
		set.Set(rand.IntN(cpus))
		_ = unix.SchedSetaffinity(pid, &set)
	}
}
