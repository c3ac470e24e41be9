// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// limitSlack is how far from its limit a pod may be, over the span it is watched,
// whose threads always want more.
const limitSlack = 0.01

// held is what the scheduler says of a cgroup's limit.
func held(t *testing.T, s *Scheduler, cgroup string) LimitStats {
	t.Helper()
	limits, err := s.Limits()
	if err != nil {
		t.Fatal(err)
	}
	id := cgroupID(t, cgroup)
	i := slices.IndexFunc(limits, func(l LimitStats) bool { return l.ID == id })
	if i < 0 {
		t.Fatalf("no limit is held for %s", cgroup)
	}
	return limits[i]
}

func wantCPUs(t *testing.T, name string, got, want float64) {
	t.Helper()
	t.Logf("%s: %.4f CPUs", name, got)
	if got < want*(1-limitSlack) || got > want*(1+limitSlack) {
		t.Errorf("%s: %.4f CPUs, want %.4f within %.0f %%", name, got, want, 100*limitSlack)
	}
}

// A limited pod uses what its limit says, whatever its threads want.
func TestLimitHolds(t *testing.T) {
	requireVirtualTime(t)
	const longestStop = 3 * time.Millisecond // T8; a process that starts has debts: of most draws it is below 1
	for _, c := range []struct {
		name, max, burst string
		threads          int
		of               tier.Tier
		want             float64
		stop             time.Duration
	}{
		{"1.5 CPUs", "150000 100000", "0", 8, tier.Standard, 1.5, longestStop},
		{"10 ms period", "15000 10000", "0", 8, tier.Standard, 1.5, longestStop},
		{"a tenth", "10000 100000", "0", 4, tier.Standard, 0.1, 7 * time.Millisecond},
		{"a burst is once", "100000 100000", "100000", 4, tier.Standard, 1, longestStop},
		{"one thread below it", "150000 100000", "0", 1, tier.Standard, 1, 0},
		{"critical", "150000 100000", "0", 8, tier.Critical, 1.5, longestStop},
		{"background", "150000 100000", "0", 8, tier.Background, 1.5, longestStop},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := attach(t, Config{})
			pod := testCgroup(t, "pod")
			write(t, pod, "cpu.max", c.max)
			write(t, pod, "cpu.max.burst", c.burst)
			apply(t, s, planGroup(t, pod, policy.Group{Tier: c.of}))
			spinners(t, pod, c.threads, anyCPU)
			time.Sleep(settle)
			before, kernel := held(t, s, pod), cpuUsage(t, pod)
			span := shareTime
			if c.want >= 1 { // a hundredth of it is more than a stop
				span = exactTime
			}
			wantCPUs(t, "pod", shares(t, span, pod)[0], c.want)
			after := held(t, s, pod)
			kernel = cpuUsage(t, pod) - kernel
			t.Logf("%+v", after)
			if used := after.Used - before.Used; used < kernel*98/100 || used > kernel*102/100 {
				t.Errorf("charged %v, the kernel booked %v", used, kernel)
			}
			if c.threads > 1 && after.LongestStop > c.stop {
				t.Errorf("threads waited and none ran for %v, want at most %v", after.LongestStop, c.stop)
			}
			stillAttached(t, s)
		})
	}
}

// While a thread that fell asleep is still on its CPU, the kernel looks for the
// next one and books the time to it: its limit pays that too. And it gets all of
// its limit, though on kernels before 7.0 preemptions get lost (insertsLosePreempt).
func TestLimitPaysForSwitches(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	pod, background := testCgroup(t, "pod"), testCgroup(t, "background")
	write(t, pod, "cpu.max", "150000 100000")
	apply(t, s,
		planGroup(t, pod, policy.Group{Tier: tier.Critical}),
		planGroup(t, background, policy.Group{Tier: tier.Background}))
	nappers(t, pod, 8)
	spinners(t, background, 4, anyCPU)
	time.Sleep(settle)
	wantCPUs(t, "pod", shares(t, shareTime, pod)[0], 1.5)
	stillAttached(t, s)
}

// Limits above one another all hold, and who waits at a pod's limit does so by
// age, whichever container it is in.
func TestLimitsNest(t *testing.T) {
	requireVirtualTime(t)
	for _, c := range []struct {
		name, pod, a, b string
		want            float64 // of both
		leastA, mostA   float64
	}{
		{"the pod's binds", "100000 100000", "80000 100000", "80000 100000", 1, 0.47, 0.53},
		{"a container's binds", "200000 100000", "30000 100000", "max", 2, 0.297, 0.303},
		{"both containers' bind", "200000 100000", "30000 100000", "150000 100000", 1.8, 0.297, 0.303},
		{"below its child's", "50000 100000", "150000 100000", "max", 0.5, 0.24, 0.26},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := attach(t, Config{})
			pod := testCgroup(t, "pod")
			a, b := testCgroup(t, "pod/a"), testCgroup(t, "pod/b")
			write(t, pod, "cpu.max", c.pod)
			write(t, a, "cpu.max", c.a)
			write(t, b, "cpu.max", c.b)
			apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Standard}))
			spinners(t, a, 4, anyCPU)
			spinners(t, b, 4, anyCPU)
			time.Sleep(settle)
			got := shares(t, shareTime, a, b)
			wantCPUs(t, "both", got[0]+got[1], c.want)
			t.Logf("a: %.4f CPUs", got[0])
			if got[0] < c.leastA || got[0] > c.mostA {
				t.Errorf("a: %.4f CPUs, want %.3f to %.3f", got[0], c.leastA, c.mostA)
			}
			stillAttached(t, s)
		})
	}
}

// A limit that changes under load, comes, or goes takes effect at once.
func TestLimitChanges(t *testing.T) {
	requireVirtualTime(t)
	const effective = 10 * time.Millisecond
	s := attach(t, Config{})
	pod := testCgroup(t, "pod")
	apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Standard}))
	spinners(t, pod, 8, anyCPU)
	time.Sleep(settle)
	for _, c := range []struct {
		max  string
		want float64
	}{
		{"50000 100000", 0.5},
		{"300000 100000", 3},
		{"10000 100000", 0.1},
		{"20000 10000", 2},
		{"max 100000", 4},
		{"150000 100000", 1.5},
	} {
		write(t, pod, "cpu.max", c.max)
		time.Sleep(effective)
		// What ran above a lower limit until then is paid back: not more, that is all.
		if got := shares(t, settle, pod)[0]; got > c.want*(1+limitSlack) {
			t.Errorf("%s: %.4f CPUs at once", c.max, got)
		}
		wantCPUs(t, c.max, shares(t, shareTime, pod)[0], c.want)
	}
	stillAttached(t, s)
}

// A thread that is moved out of its limit goes on from slice to slice like any other.
func TestLeavesItsLimit(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	limited, free, rest := testCgroup(t, "limited"), testCgroup(t, "free"), testCgroup(t, "rest")
	write(t, limited, "cpu.max", "30000 100000")
	apply(t, s,
		planGroup(t, limited, policy.Group{Tier: tier.Standard}),
		planGroup(t, free, policy.Group{Tier: tier.Standard}),
		planGroup(t, rest, policy.Group{Tier: tier.Background}))
	mover := spinners(t, limited, 1, anyCPU)
	spinners(t, rest, 8, anyCPU)
	time.Sleep(settle)
	write(t, free, "cgroup.procs", strconv.Itoa(mover.Process.Pid))
	time.Sleep(settle)
	before := preempted(t, mover.Process.Pid)
	wantCPUs(t, "without a limit", shares(t, shareTime, free)[0], 1)
	if n := preempted(t, mover.Process.Pid) - before; n > 20 {
		t.Errorf("taken off its CPU %d times in %v, want 20 at most", n, shareTime)
	}
	stillAttached(t, s)
}

// preempted is how often the kernel took a process' threads off their CPUs.
func preempted(t *testing.T, pid int) (n int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var of int
		_, after, _ := strings.Cut(string(text), "nonvoluntary_ctxt_switches:")
		if _, err := fmt.Sscan(after, &of); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		n += of
	}
	return n
}

// A limit that comes above another one holds for threads that never stop, too.
func TestLimitComesAbove(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	pod := testCgroup(t, "pod")
	container := testCgroup(t, "pod/container")
	write(t, container, "cpu.max", "400000 100000")
	apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Standard}))
	spinners(t, container, 1, anyCPU)
	time.Sleep(settle)
	wantCPUs(t, "one thread below four CPUs", shares(t, shareTime, container)[0], 1)
	write(t, pod, "cpu.max", "30000 100000")
	time.Sleep(10 * time.Millisecond)
	wantCPUs(t, "with a limit above", shares(t, shareTime, container)[0], 0.3)
	stillAttached(t, s)
}

// A thread that leaves the class while it runs, for a real-time one, pays for what it ran.
func TestChangeOfClassIsPaidFor(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	pod := testCgroup(t, "pod")
	write(t, pod, "cpu.max", "50000 100000")
	apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Standard}))
	start(t, pod, "leave")
	time.Sleep(settle)
	got := shares(t, shareTime, pod)[0]
	t.Logf("%.3f CPUs", got)
	if got < .49 || got > .55 { // the real-time moments are nobody's
		t.Errorf("the pod used %.3f CPUs of a limit of 0.5", got)
	}
	stillAttached(t, s)
}

// Threads whose affinity changes while they wait at a gate, or run on a grant, as Kubernetes'
// static CPU manager does to all that share CPUs: they use no more than their limit, and less
// neither, and leave nothing behind.
func TestAffinityChangesCostNothing(t *testing.T) {
	requireVirtualTime(t)
	for _, c := range []struct {
		max  string
		want float64
	}{{"50000 100000", .5}, {"250000 100000", 2.5}} {
		t.Run(c.max, func(t *testing.T) {
			s := attach(t, Config{})
			pod := testCgroup(t, "pod")
			write(t, pod, "cpu.max", c.max)
			apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Standard}))
			cmd := spinners(t, pod, 8, anyCPU)
			time.Sleep(settle)
			began, before := time.Now(), held(t, s, pod).Used
			for n := range 500 {
				changeAffinities(t, cmd.Process.Pid, 3+n%2)
			}
			used := held(t, s, pod).Used - before
			got := used.Seconds() / time.Since(began).Seconds()
			t.Logf("meanwhile %.3f CPUs", got)
			if got > c.want*1.05 || got < c.want*.6 { // each change ends a grant, or a wait
				t.Errorf("meanwhile it used %.3f CPUs of %.1f", got, c.want)
			}
			time.Sleep(settle) // what it could not use it has saved, a period's quota at most
			wantCPUs(t, "afterwards", shares(t, shareTime, pod)[0], c.want)
			kill(cmd)
			var g schedGate
			for slot := range s.maps[schedMapGates].MaxEntries() {
				if err := s.maps[schedMapGates].LookupWithFlags(slot, &g, ebpf.LookupLock); err != nil {
					t.Fatal(err)
				}
				if g.Cgroup == cgroupID(t, pod) {
					break
				}
			}
			if g.Running != 0 || g.Waiting != 0 || g.Admitted != 0 || g.Granted != 0 {
				t.Errorf("all threads are dead, and %d run, %d wait, %d have a grant, of %d ns", g.Running, g.Waiting, g.Admitted, g.Granted)
			}
			stillAttached(t, s)
		})
	}
}

// changeAffinities lets all threads of a process run on the first n CPUs.
func changeAffinities(t *testing.T, pid, n int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	for cpu := range n {
		set.Set(cpu)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil {
			t.Fatal(err)
		}
	}
}

// What the kernel refuses it still refuses, and the limit before it holds.
func TestBadLimitsAreRefused(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	pod := testCgroup(t, "pod")
	write(t, pod, "cpu.max", "100000 100000")
	apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Standard}))
	spinners(t, pod, 4, anyCPU)
	for _, bad := range []string{"0 100000", "999 100000", "-1 100000", "1000 999", "1000 1000001", "a 100000", ""} {
		err := os.WriteFile(filepath.Join(pod, "cpu.max"), []byte(bad), 0o644)
		// Nothing at all is not even a write.
		if bad != "" && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ERANGE) {
			t.Errorf("cpu.max %q: %v", bad, err)
		}
	}
	time.Sleep(settle)
	wantCPUs(t, "pod", shares(t, shareTime, pod)[0], 1)
	stillAttached(t, s)
}

// Threads that wait at their limit still stop, freeze, move and die.
func TestParkedThreadsObey(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	pod, free := testCgroup(t, "pod"), testCgroup(t, "free")
	write(t, pod, "cpu.max", "2000 100000")
	apply(t, s, planGroup(t, pod, policy.Group{Tier: tier.Standard}), planGroup(t, free, policy.Group{Tier: tier.Standard}))
	cmd := spinners(t, pod, 8, anyCPU)
	pid := cmd.Process.Pid
	time.Sleep(settle)

	t.Run("stop and go on", func(t *testing.T) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		if got := shares(t, 200*time.Millisecond, pod)[0]; got > 0.001 {
			t.Errorf("stopped, it used %.4f CPUs", got)
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		wantCPUs(t, "going on", shares(t, shareTime, pod)[0], 0.02)
	})
	t.Run("freeze and thaw", func(t *testing.T) {
		write(t, pod, "cgroup.freeze", "1")
		time.Sleep(100 * time.Millisecond)
		if got := shares(t, 200*time.Millisecond, pod)[0]; got > 0.001 {
			t.Errorf("frozen, it used %.4f CPUs", got)
		}
		write(t, pod, "cgroup.freeze", "0")
		time.Sleep(50 * time.Millisecond)
		wantCPUs(t, "thawed", shares(t, shareTime, pod)[0], 0.02)
	})
	t.Run("move away", func(t *testing.T) {
		write(t, free, "cgroup.procs", strconv.Itoa(pid))
		if got := shares(t, 200*time.Millisecond, free)[0]; got < 3.9 {
			t.Errorf("out of its limit it used %.2f CPUs of 4", got)
		}
		write(t, pod, "cgroup.procs", strconv.Itoa(pid))
		time.Sleep(50 * time.Millisecond)
		wantCPUs(t, "back", shares(t, shareTime, pod)[0], 0.02)
	})
	t.Run("die", func(t *testing.T) {
		began := time.Now()
		kill(cmd)
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("dying took %v", took)
		}
	})
	stillAttached(t, s)
}
