// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// lockFactor is how much longer an unlimited process may wait for a lock of the
// kernel that a paced one uses as well, than beside the same one without a limit.
const lockFactor = 1.2

// Two processes that share a lock of the kernel: one holds it as often as it
// can, the other looks how long it takes to get it.
const (
	roleContend = "contend"
	roleOperate = "operate"

	lockEnv   = "TEMPER_TEST_LOCK"
	sharedEnv = "TEMPER_TEST_SHARED" // a directory of both
	peerEnv   = "TEMPER_TEST_PEER"   // the process that contends

	directoryLock = "directory" // of the inode: files that are made, renamed and removed
	mmapLock      = "mmap"      // of an address space: mappings, and reads from outside
	pipeLock      = "pipe"
)

// A thread that is parked while it holds a lock of the kernel makes everybody
// wait who wants that lock, limited or not.
func TestParkedThreadsHoldNoLock(t *testing.T) {
	requireVirtualTime(t)
	const (
		threads    = 4
		operations = 1000
		limitMax   = "50000 100000"
		limitCPUs  = 0.5
	)
	for _, lock := range []string{directoryLock, mmapLock, pipeLock} {
		t.Run(lock, func(t *testing.T) {
			s := attach(t, Config{})
			pod, neighbour := testCgroup(t, "pod"), testCgroup(t, "neighbour")
			apply(t, s,
				planGroup(t, pod, policy.Group{Tier: tier.Standard}),
				planGroup(t, neighbour, policy.Group{Tier: tier.Standard}))
			shared := t.TempDir()
			if err := unix.Mkfifo(filepath.Join(shared, "pipe"), 0o600); err != nil {
				t.Fatal(err)
			}
			contender := contenders(t, pod, lock, shared, threads)
			time.Sleep(settle)
			free := operate(t, neighbour, lock, shared, contender, operations)

			write(t, pod, "cpu.max", limitMax)
			time.Sleep(settle)
			before, began := cpuUsage(t, pod), time.Now()
			paced := operate(t, neighbour, lock, shared, contender, operations)
			used := float64(cpuUsage(t, pod)-before) / float64(time.Since(began))

			limit := held(t, s, pod)
			t.Logf("unlimited p50 %s p99 %s max %s", quantile(free, 0.5), quantile(free, 0.99), free[len(free)-1])
			t.Logf("paced     p50 %s p99 %s max %s, at %.3f CPUs: %+v", quantile(paced, 0.5), quantile(paced, 0.99), paced[len(paced)-1], used, limit)
			if got, most := quantile(paced, 0.99), time.Duration(lockFactor*float64(quantile(free, 0.99))); got > most {
				t.Errorf("p99 %s beside a paced process, want at most %s", got, most)
			}
			// Else nobody was parked, and nothing was tested. Who waits for a lock does not
			// use the limit up meanwhile.
			if limit.Waits == 0 || used < 0.8*limitCPUs || used > 1.1*limitCPUs {
				t.Errorf("the pod waited %d times and used %.3f CPUs, want about %.1f", limit.Waits, used, limitCPUs)
			}
			stillAttached(t, s)
		})
	}
}

// contenders starts a process of n threads that hold the lock in turns.
func contenders(t *testing.T, cgroup, lock, shared string, n int) *exec.Cmd {
	t.Helper()
	cmd := start(t, cgroup, roleContend, lockEnv+"="+lock, sharedEnv+"="+shared, fmt.Sprintf("%s=%d", threadsEnv, n))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	return cmd
}

// operate takes the lock n times from a cgroup and returns how long each
// took, sorted.
func operate(t *testing.T, cgroup, lock, shared string, contender *exec.Cmd, n int) []time.Duration {
	t.Helper()
	cmd := start(t, cgroup, roleOperate, lockEnv+"="+lock, sharedEnv+"="+shared,
		fmt.Sprintf("%s=%d", peerEnv, contender.Process.Pid), fmt.Sprintf("%s=%d", wakesEnv, n))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("operate: %v: %s", err, out)
	}
	var took []time.Duration
	if err := json.Unmarshal(out, &took); err != nil {
		t.Fatalf("read durations %q: %v", out, err)
	}
	if len(took) != n {
		t.Fatalf("%d durations, want %d", len(took), n)
	}
	slices.Sort(took)
	return took
}

// runLockRole is what a child of the test does.
func runLockRole(role string) {
	lock, shared := os.Getenv(lockEnv), os.Getenv(sharedEnv)
	if role == roleOperate {
		operateTimed(outsider(lock, shared, envInt(peerEnv, 0)), envInt(wakesEnv, 1000))
		return
	}
	n := envInt(threadsEnv, 1)
	runtime.GOMAXPROCS(n) // a system call keeps its P: the runtime stays out of this
	for i := range n - 1 {
		go contend(insider(lock, shared, i+1))
	}
	contend(insider(lock, shared, 0))
}

func contend(once func()) {
	bind(0)
	for {
		once()
	}
}

// operateTimed does n operations, a millisecond and a bit apart, and prints how
// long each took, in ns.
func operateTimed(once func(), n int) {
	bind(0)
	took := make([]int64, 0, n)
	pause := unix.NsecToTimespec(1_037_000)
	var began, ended unix.Timespec
	for range n {
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &pause, nil)
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &began)
		once()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ended)
		took = append(took, ended.Nano()-began.Nano())
	}
	_ = json.NewEncoder(os.Stdout).Encode(took)
}

// insider is what thread i of the process that contends does again and again.
func insider(lock, shared string, i int) func() {
	switch lock {
	case directoryLock:
		return renamer(shared, fmt.Sprint("inside", i))
	case mmapLock:
		return mapAndUnmap
	}
	return piper(shared, 16<<10)
}

// outsider is what the unlimited process does: the same in a shared directory and
// on a shared pipe; of the other's address space it reads a word.
func outsider(lock, shared string, peer int) func() {
	switch lock {
	case directoryLock:
		return renamer(shared, "outside")
	case mmapLock:
		return reader(peer)
	}
	return piper(shared, 1)
}

// must ends a child whose operation means nothing any more.
func must(what string, errno unix.Errno) {
	if errno != 0 {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, errno)
		os.Exit(1)
	}
}

func cText(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

// kept holds the strings that only the kernel sees. The collector is off.
var kept []*byte

// renamer makes a file, gives it another name and removes it. Raw calls: nothing
// is allocated, and no other thread of the runtime wakes.
func renamer(dir, name string) func() {
	from, to := cText(filepath.Join(dir, name)), cText(filepath.Join(dir, name+".new"))
	cwd := unix.AT_FDCWD
	at := uintptr(cwd)
	return func() {
		fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, at, from, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600, 0, 0)
		must("create file", errno)
		_, _, errno = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		must("close file", errno)
		_, _, errno = unix.RawSyscall6(unix.SYS_RENAMEAT2, at, from, at, to, 0, 0)
		must("rename file", errno)
		_, _, errno = unix.RawSyscall(unix.SYS_UNLINKAT, at, to, 0)
		must("remove file", errno)
	}
}

// mapAndUnmap changes the address space, with enough pages to take a while.
func mapAndUnmap() {
	const size = 256 << 10
	addr, _, errno := unix.RawSyscall6(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE, ^uintptr(0), 0)
	must("map memory", errno)
	_, _, errno = unix.RawSyscall(unix.SYS_MUNMAP, addr, size, 0)
	must("unmap memory", errno)
}

// reader reads a word of another process, at the start of its program. The
// kernel takes the lock of that process's address space for it.
func reader(pid int) func() {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		panic(err)
	}
	defer maps.Close()
	var start uintptr
	if _, err := fmt.Fscanf(maps, "%x-", &start); err != nil {
		panic(err)
	}
	word := make([]byte, 8)
	local := []unix.Iovec{{Base: &word[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: start, Len: 8}}
	return func() {
		if _, err := unix.ProcessVMReadv(pid, local, remote, 0); err != nil {
			panic(err)
		}
	}
}

// piper writes so many bytes into the shared pipe and reads as many. Whether
// they are its own, and whether there was room, is all the same: the lock is taken.
func piper(dir string, size int) func() {
	fd, err := unix.Open(filepath.Join(dir, "pipe"), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	buffer := make([]byte, size)
	at := uintptr(unsafe.Pointer(&buffer[0]))
	kept = append(kept, &buffer[0])
	call := func(what string, nr uintptr) {
		if _, _, errno := unix.RawSyscall(nr, uintptr(fd), at, uintptr(size)); errno != unix.EAGAIN {
			must(what, errno)
		}
	}
	return func() {
		call("write pipe", unix.SYS_WRITE)
		call("read pipe", unix.SYS_READ)
	}
}
