// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

const cgroupRoot = "/sys/fs/cgroup"

// worker is what TestProbeWorker does in a process of its own.
type worker struct {
	CPU   int           // bound to it; -1: to none
	Every time.Duration // works once per that; 0: always
	Work  time.Duration // each time
}

// TestProbeWorker is no test: it is the process that startWorker starts.
func TestProbeWorker(t *testing.T) {
	spec, ok := os.LookupEnv("PROBE_WORKER")
	if !ok {
		return
	}
	var w worker
	if err := json.Unmarshal([]byte(spec), &w); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	if set.Set(w.CPU); w.CPU >= 0 {
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
	}
	for next := monotonic(); ; next += w.Every {
		if w.Every > 0 {
			at := unix.NsecToTimespec(int64(next))
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil)
		}
		began := monotonic()
		next = max(next, began)
		for monotonic()-began < w.Work {
		}
	}
}

// startWorker starts a worker in a cgroup, until the test ends.
func startWorker(t *testing.T, cgroup string, w worker) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(filepath.Join(cgroupRoot, cgroup))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProbeWorker$")
	cmd.Env = append(os.Environ(), "PROBE_WORKER="+string(spec), "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWorker(cmd) })
	return cmd
}

func stopWorker(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// runDelay is the time that the kernel itself saw a process's threads wait for
// a CPU, woken or preempted.
func runDelay(t *testing.T, cmd *exec.Cmd) (sum time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v, %v", cmd.Process.Pid, threads, err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.Fields(string(stat))[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// makeCgroup creates a cgroup for the length of the test and returns its id.
func makeCgroup(t *testing.T, name string) uint64 {
	t.Helper()
	path := filepath.Join(cgroupRoot, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeCgroup(path); err != nil {
			t.Errorf("remove cgroup %s: %v", name, err)
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func setWeight(t *testing.T, cgroup string, weight int) {
	t.Helper()
	path := filepath.Join(cgroupRoot, cgroup, "cpu.weight")
	if err := os.WriteFile(path, []byte(strconv.Itoa(weight)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// removeCgroup waits for processes that were reaped but not yet gone.
func removeCgroup(path string) (err error) {
	for range 100 {
		err = os.Remove(path)
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		pause := unix.NsecToTimespec(int64(10 * time.Millisecond))
		_ = unix.Nanosleep(&pause, nil)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// usage is the CPU time that the kernel itself counted for a cgroup.
func usage(t *testing.T, cgroup string) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join(cgroupRoot, cgroup, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(stat)) {
		if text, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(us) * time.Microsecond
		}
	}
	t.Fatalf("cpu.stat of %s has no usage_usec", cgroup)
	return 0
}

func startProbe(t *testing.T, cfg ProbeConfig) *Probe {
	t.Helper()
	began := monotonic()
	p, err := StartProbe(cfg)
	if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		t.Fatalf("start probe: %v\n%s", err, strings.Join(verifier.Log[max(0, len(verifier.Log)-40):], "\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("probe started in %v", monotonic()-began)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func readProbe(t *testing.T, p *Probe) Stats {
	t.Helper()
	s, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wait(d time.Duration) {
	pause := unix.NsecToTimespec(int64(d))
	for errors.Is(unix.Nanosleep(&pause, &pause), unix.EINTR) {
	}
}

func group(t *testing.T, s Stats, id uint64) GroupStats {
	t.Helper()
	for _, g := range s.Groups {
		if g.ID == id {
			return g
		}
	}
	t.Fatalf("group %d was not measured: %d others were", id, len(s.Groups))
	return GroupStats{}
}

// within reports whether got differs from want by at most a share of it.
func within(got, want time.Duration, share float64) bool {
	return (got - want).Abs() <= time.Duration(float64(want)*share)
}

// node is a guest under the kernel's own scheduler, with a critical sleeper and
// a background spinner on CPU 0, a background spinner anywhere, a standard
// sleeper on the last CPU, which is the critical group's fence.
type node struct {
	probe                          *Probe
	critical, standard, background uint64
	worker                         *exec.Cmd // the critical one
	fence                          int
}

func startNode(t *testing.T) node {
	t.Helper()
	requireGuest(t)
	n := node{
		probe:      startProbe(t, ProbeConfig{}),
		critical:   makeCgroup(t, "probe-critical"),
		standard:   makeCgroup(t, "probe-standard"),
		background: makeCgroup(t, "probe-background"),
		fence:      runtime.NumCPU() - 1,
	}
	err := n.probe.Apply(policy.Plan{Groups: []policy.Group{
		{Cgroup: "/probe-critical", ID: n.critical, Tier: tier.Critical, Fence: []int{n.fence}},
		{Cgroup: "/probe-standard", ID: n.standard, Tier: tier.Standard},
		{Cgroup: "/probe-background", ID: n.background, Tier: tier.Background},
	}})
	if err != nil {
		t.Fatal(err)
	}
	// So that the spinner keeps its CPU against the critical task on any kernel.
	setWeight(t, "probe-critical", 1)
	setWeight(t, "probe-background", 10000)
	startWorker(t, "probe-background", worker{CPU: 0})
	startWorker(t, "probe-background", worker{CPU: -1})
	startWorker(t, "probe-standard", worker{CPU: n.fence, Every: 20 * time.Millisecond, Work: 10 * time.Millisecond})
	n.worker = startWorker(t, "probe-critical", worker{CPU: 0, Every: 20 * time.Millisecond})
	wait(time.Second)
	return n
}

func TestProbeLedgerAddsUp(t *testing.T) {
	n := startNode(t)
	outer := monotonic()
	first := readProbe(t, n.probe)
	inner := monotonic()
	before := first
	wall := time.Duration(0)
	for i := range 20 {
		wait(time.Duration(10+i*7) * time.Millisecond)
		wall = monotonic() - inner
		after := readProbe(t, n.probe)
		for k, c := range after.CPUs {
			if err := addsUp(before.CPUs[k], c, after.At-before.At); err != nil {
				t.Error(err)
			}
		}
		before = after
	}
	outer = monotonic() - outer
	for k, c := range before.CPUs {
		var sum time.Duration
		for b := range c.Buckets {
			sum += c.Buckets[b] - first.CPUs[k].Buckets[b]
		}
		if sum < wall*999/1000 || sum > outer*1001/1000 {
			t.Errorf("CPU %d: the ledger has %v, between %v and %v passed", c.CPU, sum, wall, outer)
		}
		t.Logf("CPU %d: %v", c.CPU, c.Buckets)
	}
	if got, want := len(before.CPUs), runtime.NumCPU(); got != want {
		t.Errorf("%d ledgers of %d CPUs", got, want)
	}
	spun := before.CPUs[0].Buckets[BucketBackground] - first.CPUs[0].Buckets[BucketBackground]
	if spun < wall/2 {
		t.Errorf("CPU 0 ran background for %v of %v beside a critical task of least weight", spun, wall)
	}
	lent := before.CPUs[n.fence].Buckets[BucketLent] - first.CPUs[n.fence].Buckets[BucketLent]
	if lent < wall/4 {
		t.Errorf("CPU %d is a fence and lent %v of %v to a standard task", n.fence, lent, wall)
	}
}

// addsUp checks one CPU's ledger between two readings.
func addsUp(before, after CPUTime, wall time.Duration) error {
	var sum time.Duration
	for b := range after.Buckets {
		d := after.Buckets[b] - before.Buckets[b]
		sum += d
		// What a CPU did while it was read is put right later.
		if d < -time.Millisecond {
			return fmt.Errorf("CPU %d: bucket %d went back by %v", after.CPU, b, -d)
		}
	}
	if !within(sum, wall, 0.001) {
		return fmt.Errorf("CPU %d: the ledger has %v, %v passed", after.CPU, sum, wall)
	}
	return nil
}

func TestProbeAgreesWithCPUStat(t *testing.T) {
	n := startNode(t)
	ids := map[string]uint64{"probe-critical": n.critical, "probe-standard": n.standard, "probe-background": n.background}
	// The probe before and after the kernel's figures: a guest may be slow.
	type reading struct {
		before, after Stats
		kernel        map[string]time.Duration
	}
	read := func() reading {
		r := reading{before: readProbe(t, n.probe), kernel: make(map[string]time.Duration)}
		for name := range ids {
			r.kernel[name] = usage(t, name)
		}
		r.after = readProbe(t, n.probe)
		return r
	}
	first := read()
	wait(5 * time.Second)
	last := read()
	for name, id := range ids {
		least := group(t, last.before, id).CPU - group(t, first.after, id).CPU
		most := group(t, last.after, id).CPU - group(t, first.before, id).CPU
		kernel := last.kernel[name] - first.kernel[name]
		t.Logf("%s: probe %v to %v, cpu.stat %v", name, least, most, kernel)
		// The kernel's own figure is as old as the last tick. What sleeps pays
		// there for the way out of idle as well, from its wakeup on; here idle
		// pays. That is 20 us each time, or what a slow guest's host makes of it.
		const tick = 8 * time.Millisecond
		share := 0.1
		if name == "probe-background" {
			share = 0.01
		}
		slack := tick + time.Duration(share*float64(kernel))
		if kernel < least-slack || kernel > most+slack {
			t.Errorf("%s: the probe counted %v to %v, cpu.stat %v", name, least, most, kernel)
		}
	}
	for name, of := range map[string]tier.Tier{
		"probe-critical": tier.Critical, "probe-standard": tier.Standard, "probe-background": tier.Background,
	} {
		// The tier's time is without interrupts, of which a guest has few.
		ofTier := last.after.Tiers[of].CPU - first.after.Tiers[of].CPU
		ofGroup := group(t, last.after, ids[name]).CPU - group(t, first.after, ids[name]).CPU
		if ofTier > ofGroup+time.Millisecond || ofTier < ofGroup*9/10 {
			t.Errorf("%s: its tier got %v, its group %v", name, ofTier, ofGroup)
		}
	}
}

func TestProbeSeesStockSchedulerInvert(t *testing.T) {
	n := startNode(t)
	before, waitedBefore := readProbe(t, n.probe), runDelay(t, n.worker)
	wait(4 * time.Second)
	after, waited := readProbe(t, n.probe), runDelay(t, n.worker)-waitedBefore
	critical := after.Tiers[tier.Critical]
	delay := critical.WakeupDelay.Sub(before.Tiers[tier.Critical].WakeupDelay)
	own := group(t, after, n.critical)
	inversion := critical.Inversion - before.Tiers[tier.Critical].Inversion
	t.Logf("%d wakeups, together %v, p50 %v, p99 %v, max %v, worst wait %v, inversion %v, at most %v; schedstat has %v",
		delay.Count(), delay.Sum, delay.Quantile(0.5), delay.Quantile(0.99), delay.Max, critical.WorstWait,
		inversion, critical.InversionMax, waited)
	if delay.Count() < 20 {
		t.Fatalf("%d wakeups counted in 4 s, want one every 20 ms or as often as the stock scheduler let it", delay.Count())
	}
	if own.WakeupDelay.Count() != critical.WakeupDelay.Count() || own.WakeupDelay.Max != critical.WakeupDelay.Max {
		t.Errorf("the only critical group has %d delays up to %v, its tier %d up to %v", own.WakeupDelay.Count(),
			own.WakeupDelay.Max, critical.WakeupDelay.Count(), critical.WakeupDelay.Max)
	}
	// The kernel counts preempted tasks as well, and from the arrival in a
	// queue on: on a slow guest's host the way there takes its time.
	if path := time.Duration(delay.Count()) * 500 * time.Microsecond; delay.Sum > waited*11/10+path || delay.Sum < waited*7/10 {
		t.Errorf("%v of wakeup delays, the kernel saw waits of %v", delay.Sum, waited)
	}
	if inversion <= 0 || critical.InversionMax <= 0 {
		t.Error("a task beside a spinner of greater weight was never kept waiting by it")
	}
	if critical.InversionMax > critical.WorstWait {
		t.Errorf("an inversion of %v in a wait of at most %v", critical.InversionMax, critical.WorstWait)
	}
	if background := after.Tiers[tier.Background]; background.Inversion != 0 {
		t.Errorf("the lowest tier was inverted for %v", background.Inversion)
	}
}

func TestProbeIsReadByAnotherProcess(t *testing.T) {
	requireGuest(t)
	const dir = DefaultProbeDir
	if _, err := OpenProbe(dir); !errors.Is(err, ErrNotMeasured) {
		t.Fatalf("open without a probe: %v, want ErrNotMeasured", err)
	}
	p := startProbe(t, ProbeConfig{PinDir: dir})
	reader, err := OpenProbe(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ours, theirs := readProbe(t, p), readProbe(t, reader)
	if len(ours.CPUs) != len(theirs.CPUs) || theirs.At < ours.At {
		t.Errorf("a reader sees %d CPUs at %v, the owner %d at %v", len(theirs.CPUs), theirs.At, len(ours.CPUs), ours.At)
	}
	if err := reader.Visit(); !errors.Is(err, ErrNotMeasured) {
		t.Errorf("visit by a reader: %v, want ErrNotMeasured", err)
	}

	// A killed owner leaves its pins: nobody counts any more.
	for _, l := range p.links {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wait(silence + 100*time.Millisecond)
	if _, err := reader.Read(); !errors.Is(err, ErrNotMeasured) {
		t.Errorf("read after the owner's death: %v, want ErrNotMeasured", err)
	}
	again := startProbe(t, ProbeConfig{PinDir: dir})
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenProbe(dir); !errors.Is(err, ErrNotMeasured) {
		t.Errorf("open after the end: %v, want ErrNotMeasured", err)
	}
}

func TestProbeForgetsRemovedGroups(t *testing.T) {
	requireGuest(t)
	p := startProbe(t, ProbeConfig{})
	var last uint64
	for i := range 5 {
		name := fmt.Sprintf("probe-short-%d", i)
		id := makeCgroup(t, name)
		stopWorker(startWorker(t, name, worker{CPU: -1}))
		if g := group(t, readProbe(t, p), id); g.Tier != tier.System || g.CPU <= 0 {
			t.Errorf("a group without a plan: tier %s, %v of CPU", g.Tier, g.CPU)
		}
		if err := removeCgroup(filepath.Join(cgroupRoot, name)); err != nil {
			t.Fatal(err)
		}
		last = id
	}
	// The kernel lets go of a cgroup some grace periods after its removal.
	known := true
	for range 500 {
		known = false
		for _, g := range readProbe(t, p).Groups {
			known = known || g.ID == last
		}
		if !known {
			break
		}
		wait(10 * time.Millisecond)
	}
	if known {
		t.Error("a removed group is still measured after 5 s")
	}
}

// pipeSwitch returns the time of one switch between two threads of one CPU that
// wake each other through pipes.
func pipeSwitch(t *testing.T) time.Duration {
	t.Helper()
	var there, back [2]int
	for _, pipe := range []*[2]int{&there, &back} {
		if err := unix.Pipe(pipe[:]); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
	}
	const rounds = 2000
	relay := func(from, to int) error {
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		var set unix.CPUSet
		set.Set(0)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return err
		}
		var token [1]byte
		for range rounds {
			if _, err := unix.Read(from, token[:]); err != nil {
				return err
			}
			if _, err := unix.Write(to, token[:]); err != nil {
				return err
			}
		}
		return nil
	}
	done := make(chan error, 2)
	go func() { done <- relay(there[0], back[1]) }()
	go func() { done <- relay(back[0], there[1]) }()
	began := monotonic()
	if _, err := unix.Write(there[1], []byte{0}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return (monotonic() - began) / (2 * rounds)
}

// In a deterministic guest an instruction is a nanosecond: there the difference
// is the probe's price of a wakeup and a switch.
func TestProbeCost(t *testing.T) {
	requireGuest(t)
	pipeSwitch(t)
	without := pipeSwitch(t)
	p := startProbe(t, ProbeConfig{})
	pipeSwitch(t)
	with := pipeSwitch(t)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	again := pipeSwitch(t)
	t.Logf("a pipe switch takes %v with the probe, %v and %v without", with, without, again)
	// Twice is what a busy host of the guest may make of it.
	if least := min(without, again); with > 2*least {
		t.Errorf("a pipe switch takes %v with the probe, %v without", with, least)
	}
}
