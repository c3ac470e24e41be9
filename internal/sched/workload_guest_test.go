// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	spinner "github.com/temper-sched/temper/internal/bench/spin"
	"github.com/temper-sched/temper/internal/policy"
)

// The test binary is its own workload: started with roleEnv it spins or wakes
// instead of testing.
const (
	roleEnv    = "TEMPER_TEST_ROLE"
	threadsEnv = "TEMPER_TEST_THREADS"
	wakesEnv   = "TEMPER_TEST_WAKES"
	cpuEnv     = "TEMPER_TEST_CPU"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "spin":
		spin(envInt(threadsEnv, 1), burn)
	case "nap":
		spin(envInt(threadsEnv, 1), nap)
	case "doze":
		spin(envInt(threadsEnv, 1), doze)
	case "burst":
		bind(0)
		burst()
	case "stint":
		spin(envInt(threadsEnv, 1), stint)
	case "send":
		spin(envInt(threadsEnv, 1), send)
	case "stay":
		spin(1, stay)
	case "leave":
		spin(1, leave)
	case "wake":
		wake(envInt(wakesEnv, 1000))
	case "attach":
		fmt.Println(attachOnce())
	case roleContend, roleOperate:
		runLockRole(os.Getenv(roleEnv))
	default:
		os.Exit(m.Run())
	}
}

func envInt(name string, missing int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return missing
}

// everyCPU binds thread i of a process to CPU i; anyCPU binds none.
const (
	anyCPU   = -1
	everyCPU = -2
)

// bind restricts the calling thread, the i-th of its process, to the CPU that
// the environment names.
func bind(i int) {
	runtime.LockOSThread()
	cpu := envInt(cpuEnv, anyCPU)
	if cpu == everyCPU {
		cpu = i
	}
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		_ = unix.SchedSetaffinity(0, &set)
	}
}

// spin keeps n threads at work until it is killed. As many Ps as threads and no
// asynchronous preemption (start sets it): the runtime adds no work of its own.
func spin(n int, work func()) {
	runtime.GOMAXPROCS(n)
	for i := range n - 1 {
		go func() {
			bind(i + 1)
			work()
		}()
	}
	bind(0)
	work()
}

func burn() {
	for n := uint64(1); n != 0; n += 2 {
		continue
	}
}

// nap works for 50 µs and sleeps for 20, as a server with small requests does.
// Raw system calls: the runtime would take the thread for one that is stuck.
func nap() { workAndSleep(20_000) }

// doze works eight times as long as nap.
func doze() { workAndSleep(160_000) }

func workAndSleep(rounds int) {
	rest := unix.NsecToTimespec(20_000)
	for {
		for range rounds {
			continue
		}
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&rest)), 0, 0)
	}
}

// burst computes for a millisecond and sleeps for two, before all who are not of the
// real-time classes.
func burst() {
	const fifo = 1
	priority := int32(1)
	if _, _, err := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, fifo, uintptr(unsafe.Pointer(&priority))); err != 0 {
		fmt.Fprintln(os.Stderr, "sched_setscheduler:", err)
		os.Exit(1)
	}
	stint()
}

// stint computes for a millisecond and sleeps for two.
func stint() {
	rest := unix.NsecToTimespec(2_000_000)
	for {
		for began := monotonic(); monotonic()-began < time.Millisecond; {
			continue
		}
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&rest)), 0, 0)
	}
}

// send computes for 0.4 ms and sends a packet, whose softirq the kernel does there and then.
// It is called a spinner, which is what slowKernel's programs look for.
func send() {
	name := [16]byte{'s', 'p'}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0)
	to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Bind(socket, to)
	}
	if err == nil {
		var self unix.Sockaddr
		if self, err = unix.Getsockname(socket); err == nil {
			err = unix.Connect(socket, self)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	packet := [1]byte{}
	for {
		for began := monotonic(); monotonic()-began < 400*time.Microsecond; {
			continue
		}
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(socket), uintptr(unsafe.Pointer(&packet)), 1)
	}
}

// stay spends its time in the kernel where no thread may change its CPU, and where it can be
// preempted nevertheless: in a BPF program, as those of a network plugin or a monitor.
func stay() {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	for err == nil {
		_, err = program.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: 1 << 12})
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	fmt.Fprintln(os.Stderr, "run a BPF program:", err)
	os.Exit(1)
}

// leave computes for a millisecond, and is of a real-time class for a moment, as one that
// holds a lock which a real-time thread waits for.
func leave() {
	const fifo, other = 1, 0
	for {
		for began := monotonic(); monotonic()-began < time.Millisecond; {
			continue
		}
		for _, class := range []struct {
			policy   uintptr
			priority int32
		}{{fifo, 1}, {other, 0}} {
			if _, _, err := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, class.policy, uintptr(unsafe.Pointer(&class.priority))); err != 0 {
				fmt.Fprintln(os.Stderr, "sched_setscheduler:", err)
				os.Exit(1)
			}
		}
	}
}

// wake sleeps to n instants, a millisecond and a bit apart so that they wander
// over the tick, and prints how late it ran each time, in ns.
func wake(n int) {
	bind(0)
	const period = 1_037_000
	late := make([]int64, 0, n)
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	next := now.Nano()
	for range n {
		next += period
		until := unix.NsecToTimespec(next)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
		}
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		late = append(late, now.Nano()-next)
		next = max(next, now.Nano())
	}
	_ = json.NewEncoder(os.Stdout).Encode(late)
	os.Exit(0)
}

// testCgroup makes a cgroup that is removed with everything in it.
func testCgroup(t *testing.T, path string) string {
	t.Helper()
	dir := filepath.Join(cgroupDir, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for parent := filepath.Dir(dir); strings.HasPrefix(parent, cgroupDir); parent = filepath.Dir(parent) {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpu"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	return dir
}

func write(t *testing.T, dir, file, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cgroupID is the inode number, as the kernel side sees it.
func cgroupID(t *testing.T, dir string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// start runs a role of the test binary inside a cgroup until the test ends.
func start(t *testing.T, cgroup, role string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), append(env, roleEnv+"="+role, "GOGC=off", "GODEBUG=asyncpreemptoff=1")...)
	cmd.Stderr = os.Stderr
	startsIn(t, cgroup, cmd)
	switch role {
	case "spin", "nap", "doze", "burst", "stint", "send", "stay", "leave": // of no end
		startNow(t, cmd)
	}
	return cmd
}

// startsIn has a command start in a cgroup, whenever before the test ends.
func startsIn(t *testing.T, cgroup string, cmd *exec.Cmd) {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
}

func startNow(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// spinners starts a process of n spinning threads in a cgroup, bound to a CPU,
// to anyCPU or to everyCPU.
func spinners(t *testing.T, cgroup string, n, cpu int) *exec.Cmd {
	t.Helper()
	return start(t, cgroup, "spin", fmt.Sprintf("%s=%d", threadsEnv, n), fmt.Sprintf("%s=%d", cpuEnv, cpu))
}

// bareSpinners starts n processes of one thread each, without a runtime whose other
// threads would sleep and wake, and end slices between ticks.
func bareSpinners(t *testing.T, cgroup string, n int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "spinner")
	if err := spinner.Install(program); err != nil {
		t.Fatal(err)
	}
	for range n {
		cmd := exec.Command(program)
		startsIn(t, cgroup, cmd)
		startNow(t, cmd)
	}
}

// sleeper starts a process that sleeps until the test ends.
func sleeper(t *testing.T, cgroup string) {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	startsIn(t, cgroup, cmd)
	startNow(t, cmd)
}

// nappers starts a process of n threads that sleep all the time, for a moment.
func nappers(t *testing.T, cgroup string, n int) {
	t.Helper()
	start(t, cgroup, "nap", fmt.Sprintf("%s=%d", threadsEnv, n))
}

// delays runs n timed wakeups in a cgroup and returns how late each was, sorted.
func delays(t *testing.T, cgroup string, n, cpu int) []time.Duration {
	t.Helper()
	cmd := start(t, cgroup, "wake", fmt.Sprintf("%s=%d", wakesEnv, n), fmt.Sprintf("%s=%d", cpuEnv, cpu))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var late []time.Duration
	if err := json.Unmarshal(out, &late); err != nil {
		t.Fatalf("read delays %q: %v", out, err)
	}
	slices.Sort(late)
	return late
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// cpuUsage is the CPU time a cgroup has used.
func cpuUsage(t *testing.T, cgroup string) time.Duration {
	t.Helper()
	f, err := os.Open(filepath.Join(cgroup, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var usec int64
		if n, _ := fmt.Sscanf(lines.Text(), "usage_usec %d", &usec); n == 1 {
			return time.Duration(usec) * time.Microsecond
		}
	}
	t.Fatalf("no usage_usec in %s", cgroup)
	return 0
}

// usages reads what cgroups have used, at one moment. The test is of a tier of its own
// and may wait for a CPU between two of them: of ten readings the quickest counts.
func usages(t *testing.T, cgroups []string) (used []time.Duration, at time.Time) {
	t.Helper()
	quickest := time.Duration(math.MaxInt64)
	for range 10 {
		began := time.Now()
		now := make([]time.Duration, len(cgroups))
		for i, c := range cgroups {
			now[i] = cpuUsage(t, c)
		}
		if took := time.Since(began); took < quickest {
			used, at, quickest = now, began, took
		}
	}
	return used, at
}

// shares measures what each cgroup used over a window, in CPUs.
func shares(t *testing.T, window time.Duration, cgroups ...string) []float64 {
	t.Helper()
	before, began := usages(t, cgroups)
	time.Sleep(window)
	after, ended := usages(t, cgroups)
	out := make([]float64, len(cgroups))
	for i := range cgroups {
		out[i] = float64(after[i]-before[i]) / float64(ended.Sub(began))
	}
	return out
}

// planGroup is a plan's group for a test cgroup.
func planGroup(t *testing.T, dir string, g policy.Group) policy.Group {
	t.Helper()
	g.Cgroup = strings.TrimPrefix(dir, cgroupDir)
	g.ID = cgroupID(t, dir)
	return g
}

func apply(t *testing.T, s *Scheduler, groups ...policy.Group) {
	t.Helper()
	if err := s.Apply(policy.Plan{Groups: groups}); err != nil {
		t.Fatal(err)
	}
}

// stillAttached fails the test if the kernel ejected the scheduler.
func stillAttached(t *testing.T, s *Scheduler) {
	t.Helper()
	state, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	if state.Attached {
		return
	}
	// The record comes when the kernel has let go of every thread.
	for began := time.Now(); state.Exit == nil && time.Since(began) < 10*time.Second; time.Sleep(50 * time.Millisecond) {
		if state, err = s.State(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("ejected: %+v", state.Exit)
}

// requireVirtualTime skips a test whose figures mean something only on the
// laboratory's deterministic clock.
func requireVirtualTime(t *testing.T) {
	t.Helper()
	requireGuest(t)
	if !inVirtualTime() {
		t.Skip("needs virtual time: run it by make guest MODE=deterministic")
	}
}

// inVirtualTime tells whether durations are the guest's own. Elsewhere the host
// may take its time away for longer than any bound.
func inVirtualTime() bool { return os.Getenv("TEMPER_VIRTUAL_TIME") == "1" }
