// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bufio"
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
	Nice  int           //
	Every time.Duration // works once per that; 0: always
	Work  time.Duration // each time
}

// report is what a worker that sleeps saw of its own wakeups.
type report struct {
	Wakeups int           `json:"wakeups"`
	Late    time.Duration `json:"late_ns"` // all together
	Latest  time.Duration `json:"latest_ns"`
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
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), w.Nice); err != nil {
		t.Fatal(err)
	}
	// Until standard input ends.
	stopped := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(stopped)
	}()
	var seen report
	for next := monotonic(); ; next += w.Every {
		select {
		case <-stopped:
			_ = json.NewEncoder(os.Stdout).Encode(seen)
			os.Exit(0)
		default:
		}
		if w.Every > 0 {
			at := unix.NsecToTimespec(int64(next))
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil)
		}
		began := monotonic()
		if late := began - next; w.Every > 0 {
			seen.Wakeups++
			seen.Late += late
			seen.Latest = max(seen.Latest, late)
		}
		next = max(next, began)
		for monotonic()-began < max(w.Work, time.Millisecond/10) {
		}
	}
}

// startWorker starts a worker in a cgroup. The function it returns stops it.
func startWorker(t *testing.T, cgroup string, w worker) (stop func() report) {
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
	cmd.Env = append(os.Environ(), "PROBE_WORKER="+string(spec), "GOMAXPROCS=2")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := true
	stop = func() (seen report) {
		if !running {
			return seen
		}
		running = false
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("worker in %s: %v", cgroup, err)
		} else if err := json.Unmarshal([]byte(out.String()), &seen); err != nil {
			t.Errorf("worker in %s: %v", cgroup, err)
		}
		return seen
	}
	t.Cleanup(func() { stop() })
	return stop
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
	stopCritical                   func() report
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
	// A nice value of its own for each, so that the spinner keeps its CPU
	// against the critical task on any kernel.
	startWorker(t, "probe-background", worker{CPU: 0, Nice: -10})
	startWorker(t, "probe-background", worker{CPU: -1})
	startWorker(t, "probe-standard", worker{CPU: n.fence, Every: 5 * time.Millisecond, Work: 2 * time.Millisecond})
	n.stopCritical = startWorker(t, "probe-critical",
		worker{CPU: 0, Nice: 10, Every: 20 * time.Millisecond, Work: time.Millisecond})
	wait(time.Second)
	return n
}

func TestProbeLedgerAddsUp(t *testing.T) {
	n := startNode(t)
	first := readProbe(t, n.probe)
	before, firstWall := first, monotonic()
	for i := range 20 {
		wait(time.Duration(10+i*7) * time.Millisecond)
		after := readProbe(t, n.probe)
		for k, c := range after.CPUs {
			if err := addsUp(before.CPUs[k], c, after.At-before.At); err != nil {
				t.Error(err)
			}
		}
		before = after
	}
	wall := monotonic() - firstWall
	for k, c := range before.CPUs {
		var sum time.Duration
		for b := range c.Buckets {
			sum += c.Buckets[b] - first.CPUs[k].Buckets[b]
		}
		if !within(sum, wall, 0.001) {
			t.Errorf("CPU %d: the ledger has %v, %v passed", c.CPU, sum, wall)
		}
		t.Logf("CPU %d: %v", c.CPU, c.Buckets)
	}
	if got, want := len(before.CPUs), runtime.NumCPU(); got != want {
		t.Errorf("%d ledgers of %d CPUs", got, want)
	}
	spun := before.CPUs[0].Buckets[BucketBackground] - first.CPUs[0].Buckets[BucketBackground]
	if spun < wall/2 {
		t.Errorf("CPU 0 ran background for %v of %v beside a nicer critical task", spun, wall)
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
	type pair struct{ probe, kernel time.Duration }
	ids := map[string]uint64{"probe-critical": n.critical, "probe-standard": n.standard, "probe-background": n.background}
	read := func() (map[string]pair, Stats) {
		out := make(map[string]pair)
		s := readProbe(t, n.probe)
		for name, id := range ids {
			out[name] = pair{group(t, s, id).CPU, usage(t, name)}
		}
		return out, s
	}
	before, s0 := read()
	wait(5 * time.Second)
	after, s1 := read()
	byTier := map[string]tier.Tier{
		"probe-critical": tier.Critical, "probe-standard": tier.Standard, "probe-background": tier.Background,
	}
	for name := range ids {
		probe, kernel := after[name].probe-before[name].probe, after[name].kernel-before[name].kernel
		ofTier := s1.Tiers[byTier[name]].CPU - s0.Tiers[byTier[name]].CPU
		t.Logf("%s: probe %v, tier %v, cpu.stat %v", name, probe, ofTier, kernel)
		// The kernel's own figure is as old as the last tick.
		if slack := 8 * time.Millisecond; !within(probe, kernel, 0.01) && (probe-kernel).Abs() > slack {
			t.Errorf("%s: the probe counted %v, cpu.stat %v", name, probe, kernel)
		}
		// The tier's time is without interrupts, of which a guest has few.
		if ofTier > probe+8*time.Millisecond || ofTier < probe*9/10 {
			t.Errorf("%s: its tier got %v, its group %v", name, ofTier, probe)
		}
	}
}

func TestProbeSeesStockSchedulerInvert(t *testing.T) {
	n := startNode(t)
	before := readProbe(t, n.probe)
	wait(4 * time.Second)
	after := readProbe(t, n.probe)
	seen := n.stopCritical()
	critical := after.Tiers[tier.Critical]
	delay := critical.WakeupDelay.Sub(before.Tiers[tier.Critical].WakeupDelay)
	own := group(t, after, n.critical)
	inversion := critical.Inversion - before.Tiers[tier.Critical].Inversion
	t.Logf("%d wakeups, mean %v, p50 %v, p99 %v, max %v, worst wait %v, inversion %v, at most %v; the task itself: %+v",
		delay.Count(), delay.Mean(), delay.Quantile(0.5), delay.Quantile(0.99), delay.Max, critical.WorstWait,
		inversion, critical.InversionMax, seen)
	if delay.Count() < 20 {
		t.Fatalf("%d wakeups counted in 4 s, want one every 20 ms or as often as the stock scheduler let it", delay.Count())
	}
	if own.WakeupDelay.Count() != critical.WakeupDelay.Count() || own.WakeupDelay.Max != critical.WakeupDelay.Max {
		t.Errorf("the only critical group has %d delays up to %v, its tier %d up to %v", own.WakeupDelay.Count(),
			own.WakeupDelay.Max, critical.WakeupDelay.Count(), critical.WakeupDelay.Max)
	}
	// Whoever sleeps to a moment is late by the timer and by the delay.
	if delay.Max > seen.Latest || seen.Late < delay.Sum {
		t.Errorf("delays up to %v, %v together; the task saw itself late by %v, %v together",
			delay.Max, delay.Sum, seen.Latest, seen.Late)
	}
	if inversion <= 0 || critical.InversionMax <= 0 {
		t.Error("a task beside a spinner of higher nice value was never kept waiting by it")
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
		startWorker(t, name, worker{CPU: -1})()
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
