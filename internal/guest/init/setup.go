// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"github.com/temper-sched/temper/internal/guest/wire"
)

// mounts are made in this order; a directory that is missing is created.
var mounts = []struct{ dir, kind, options string }{
	{"/proc", "proc", ""},
	{"/sys", "sysfs", ""},
	{"/dev", "devtmpfs", "mode=0755"},
	{"/dev/pts", "devpts", "mode=0620"},
	{"/dev/shm", "tmpfs", "mode=1777"},
	{"/run", "tmpfs", "mode=0755"},
	{"/tmp", "tmpfs", "mode=1777"},
	{wire.OutDir, "tmpfs", "mode=1777"},
	{"/sys/fs/cgroup", "cgroup2", "nsdelegate"},
	{"/sys/fs/bpf", "bpf", "mode=1777"},
	{"/sys/kernel/debug", "debugfs", ""},
	{"/sys/kernel/tracing", "tracefs", ""},
}

// controllers are enabled for the root's children, as systemd and kubelet do.
var controllers = []string{"cpu", "cpuset", "io", "memory", "pids"}

// setup makes the machine look like a running system.
func setup() (errs []error) {
	for _, m := range mounts {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			errs = append(errs, fmt.Errorf("create %s: %w", m.dir, err))
		}
		if err := syscall.Mount(m.kind, m.dir, m.kind, 0, m.options); err != nil {
			errs = append(errs, fmt.Errorf("mount %s: %w", m.dir, err))
		}
	}
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			errs = append(errs, err)
		}
	}
	for _, c := range controllers {
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+"+c), 0); err != nil {
			errs = append(errs, fmt.Errorf("enable controller %s: %w", c, err))
		}
	}
	if err := syscall.Sethostname([]byte("guest")); err != nil {
		errs = append(errs, fmt.Errorf("set host name: %w", err))
	}
	if err := loopbackUp(); err != nil {
		errs = append(errs, fmt.Errorf("bring lo up: %w", err))
	}
	return append(errs, raiseLimits()...)
}

// raiseLimits gives the command the limits of a container runtime's children.
func raiseLimits() (errs []error) {
	const rlimitMemlock, infinity = 8, ^uint64(0)
	for _, l := range []struct {
		what int
		to   uint64
	}{{syscall.RLIMIT_NOFILE, 1 << 20}, {rlimitMemlock, infinity}} {
		if err := syscall.Setrlimit(l.what, &syscall.Rlimit{Cur: l.to, Max: l.to}); err != nil {
			errs = append(errs, fmt.Errorf("raise limit %d: %w", l.what, err))
		}
	}
	return errs
}

// loopbackUp sets IFF_UP on lo.
func loopbackUp() error {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(s)
	var req struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "lo")
	req.flags = syscall.IFF_UP | syscall.IFF_RUNNING
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(s), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}

// awaitTimers returns when a thread on each CPU has slept for a moment, which takes a timer
// of that CPU: with one that is dead, never. The host notices.
func awaitTimers() {
	done := make(chan struct{})
	for cpu := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its affinity
			var set [128]byte
			set[cpu/8] = 1 << (cpu % 8)
			_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, uintptr(len(set)), uintptr(unsafe.Pointer(&set)))
			_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 1_000_000}, nil)
			done <- struct{}{}
		}()
	}
	for range runtime.NumCPU() {
		<-done
	}
}

// uptime is nanoseconds since power-on, as the guest's clock has it.
func uptime() int64 {
	const clockBoottime = 7
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return ts.Nano()
}

func trimLine(b []byte) string { return strings.TrimSpace(string(b)) }
