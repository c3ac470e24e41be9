// SPDX-License-Identifier: Apache-2.0

// Package guest runs a command on a real kernel inside a QEMU machine, the way
// os/exec runs one on this host: tests and the laboratory share it.
//
// A Machine says which kernel, topology and clock; a Cmd says what to run on
// it. Everything a guest is made of (QEMU, kernels, the files of servers) is
// resolved from Debian packages through an apt state of its own below the
// user's cache directory, so the host's sources, lists and packages are never
// touched, and a second run needs no network.
//
// # Inside a guest
//
// Process 1 mounts proc, sysfs, devtmpfs, cgroup2 (cpu, cpuset, io, memory and
// pids enabled below the root), bpffs (mode 1777), debugfs, tracefs and tmpfs,
// brings lo up and runs the command as root with OUT=/out. The user "temper"
// has uid 1000. The command's output travels through its own port, so kernel
// messages never mix with it, and what it leaves in /out comes back to Cmd.Out.
//
// # Adding a kernel
//
// Add a row to the table in kernel.go: a name, the version it must have, the
// suites to look in, newest first, and what its BTF must show (a usable
// sched_ext, none, or the malformed kfuncs that doctor has to name). Nothing
// else refers to kernels by package. TestKernels boots every row.
package guest
