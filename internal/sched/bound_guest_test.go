// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"os"
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
	works := make(chan error, 4) // several ask: some work always waits
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
	used := shares(t, shareTime, pod)[0]
	over.Store(true)
	for range cap(works) {
		if err := <-works; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("beside a busy kernel thread: %.3f CPUs", used)
	if used < least || used > 1-least {
		t.Errorf("got %.3f CPUs, want %.1f to %.1f", used, least, 1-least)
	}
	stillAttached(t, s)
}

// Threads that may run on one CPU alone wait for it as it goes offline. Below the root's
// cpusets nobody but the scheduler frees them.
func TestHotplugOfTheirOnlyCPU(t *testing.T) {
	requireGuest(t)
	const cpu = 1
	write(t, "/sys/fs/cgroup", "cgroup.subtree_control", "-cpuset")
	t.Cleanup(func() { write(t, "/sys/fs/cgroup", "cgroup.subtree_control", "+cpuset") })
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
