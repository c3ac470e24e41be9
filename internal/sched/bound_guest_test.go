// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// refresh has the kernel thread of each CPU do a work, and waits for them.
func refresh() error {
	return os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0o644)
}

// A kernel thread that always has work takes turns with a critical thread that may run nowhere
// else: a slice of 5 ms, up to the next tick, for works of 20 ms.
func TestBusyKernelThreadTakesTurns(t *testing.T) {
	requireVirtualTime(t)
	const cpu, least = 1, 0.1
	s := attach(t, Config{})
	pod := testCgroup(t, "pod")
	apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Critical}))
	spinners(t, pod, 1, cpu)
	time.Sleep(settle)
	slowKernel(t, func(p kworkertestPrograms) *ebpf.Program { return p.WorkForLonger })
	var used float64
	whileWorkWaits(t, 4, func() { used = shares(t, shareTime, pod)[0] })
	t.Logf("beside a busy kernel thread: %.3f CPUs", used)
	if used < least || used > 1-least {
		t.Errorf("got %.3f CPUs, want %.1f to %.1f", used, least, 1-least)
	}
	stillAttached(t, s)
}

// Several of them take turns with each other, and nobody else would have one. Who may run
// nowhere else has one within the starvation bound, a slice of a millisecond up to the next tick.
func TestBusyKernelThreadsStarveNobody(t *testing.T) {
	requireVirtualTime(t)
	const cpu, least = 1, 0.001
	const parameters, threshold = "/sys/module/workqueue/parameters", "cpu_intensive_thresh_us"
	before, err := os.ReadFile(filepath.Join(parameters, threshold))
	if err != nil {
		t.Fatal(err)
	}
	write(t, parameters, threshold, "1000")
	t.Cleanup(func() { write(t, parameters, threshold, strings.TrimSpace(string(before))) })
	for _, of := range []tier.Tier{tier.Critical, tier.Background} {
		t.Run(of.String(), func(t *testing.T) {
			s := attach(t, Config{})
			pod := testCgroup(t, "pod")
			apply(t, s, planGroup(t, pod, policy.Group{Tier: of}))
			hogs := []*exec.Cmd{spinners(t, pod, 1, cpu)}
			time.Sleep(settle)
			slowKernel(t, func(p kworkertestPrograms) *ebpf.Program { return p.WorkForLongest })
			whileWorkWaits(t, 16, func() {
				time.Sleep(settle)
				before, began := runTimes(t, hogs), time.Now()
				time.Sleep(shareTime)
				after, wall := runTimes(t, hogs), time.Since(began)
				var ran uint64 // of the bound thread: those of the runtime run elsewhere
				for thread := range before {
					ran = max(ran, after[thread]-before[thread])
				}
				used := float64(ran) / float64(wall)
				t.Logf("beside busy kernel threads: %.4f CPUs", used)
				if used < least {
					t.Errorf("got %.4f CPUs, want at least %.3f", used, least)
				}
			})
			stillAttached(t, s)
		})
	}
}

// whileWorkWaits has n works wait for the kernel threads of all CPUs until do ends.
func whileWorkWaits(t *testing.T, n int, do func()) {
	t.Helper()
	works := make(chan error, n) // several ask: some work always waits
	var over atomic.Bool
	for range cap(works) {
		go func() {
			var err error
			for err == nil && !over.Load() {
				err = refresh()
			}
			works <- err
		}()
	}
	do()
	over.Store(true)
	for range cap(works) {
		if err := <-works; err != nil {
			t.Fatal(err)
		}
	}
}

// Threads that may run on one CPU alone wait for it as it goes offline. Below the root's
// cpusets nobody but the scheduler frees them.
func TestHotplugOfTheirOnlyCPU(t *testing.T) {
	requireGuest(t)
	const cpu = 1
	withoutCpusets(t)
	s := attach(t, Config{})
	low := testCgroup(t, "low")
	apply(t, s, planGroup(t, low, policy.Group{Tier: tier.Background}))
	for range 3 {
		spinners(t, low, 1, cpu)
	}
	time.Sleep(settle)
	for _, value := range []string{"0", "1"} {
		setOnline(t, cpu, value)
		stillAttached(t, s)
	}
}

// withoutCpusets has threads keep their affinities as CPUs come and go, until the test ends.
func withoutCpusets(t *testing.T) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	dirs := []string{root}
	_ = filepath.WalkDir(cgroupDir, func(dir string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, dir)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) { // no cgroup lets go what one below it has
		write(t, dir, "cgroup.subtree_control", "-cpuset")
	}
	t.Cleanup(func() { write(t, root, "cgroup.subtree_control", "+cpuset") })
}
