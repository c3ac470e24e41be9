// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Ways out, for people.
const (
	fixSchedExt   = "boot a kernel 6.16 or newer built with CONFIG_SCHED_CLASS_EXT=y"
	fixBTF        = "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y"
	fixKfuncBTF   = "boot a kernel whose BTF was made by pahole 1.31 or newer; Debian: the 7.2 of forky or sid, or 6.16 to 7.0 of trixie-backports"
	fixDenylisted = "boot a kernel other than 7.1: attaching there can deadlock the node"
	fixForeign    = "stop the other scheduler first; Temper never replaces one"
	fixCgroup     = "boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 on /sys/fs/cgroup, with the cpu controller on it"
	fixBPFFS      = "mount -t bpf bpf /sys/fs/bpf"
	fixCapability = "run as root, or give the process CAP_BPF and CAP_PERFMON"
	fixVerifier   = "report this with the output of temper doctor and of uname -r"
	fixDenied     = "run as root; in a container find the seccomp, AppArmor or SELinux profile, or the capability, that forbids it: docs/install.md, Platforms"
)

const (
	schedExtDir = "/sys/kernel/sched_ext"
	vmlinuxBTF  = "/sys/kernel/btf/vmlinux"
	cgroupDir   = "/sys/fs/cgroup"
)

// Preflight checks everything that attaching needs, in the order in which it
// would fail, and changes nothing. The pin directory need not exist.
func Preflight(pinDir string) []Check {
	release := kernelRelease()
	kernel, err := kernelTypes()
	if err != nil {
		kernel = nil
	}
	return append([]Check{checkBTF()},
		checkSchedExt(kernel, release),
		checkVersion(release),
		checkDenylist(release),
		checkKfuncs(kernel),
		checkCgroup(),
		checkBPFFS(pinDir),
		checkCapabilities(),
		checkForeign(),
		describeLimits(kernel),
	)
}

func pass(name, detail string) Check { return Check{Name: name, OK: true, Detail: detail} }

func fail(name string, reason Reason, detail, fix string) Check {
	return Check{Name: name, Reason: reason, Detail: detail, Fix: fix}
}

func checkBTF() Check {
	const name = "kernel type information (BTF)"
	file, err := os.Open(vmlinuxBTF)
	if isDenied(err) {
		return fail(name, Denied, err.Error(), fixDenied)
	}
	if err != nil {
		return fail(name, NoBTF, err.Error(), fixBTF)
	}
	file.Close()
	return pass(name, vmlinuxBTF)
}

func checkSchedExt(kernel *typeFacts, release string) Check {
	const name = "sched_ext in the kernel"
	if _, err := os.Stat(schedExtDir); err != nil {
		return fail(name, NoSchedExt, fmt.Sprintf("kernel %s has no %s", release, schedExtDir), fixSchedExt)
	}
	if kernel == nil || !kernel.hasOps {
		return fail(name, NoSchedExt, "the kernel's BTF has no struct sched_ext_ops", fixSchedExt)
	}
	return pass(name, schedExtDir)
}

// version returns the first two numbers of a kernel release.
func version(release string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(release, ".")
	second := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		second = rest[:i]
	}
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil
}

func checkVersion(release string) Check {
	const name = "kernel 6.16 or newer"
	major, minor, ok := version(release)
	if !ok || major < 6 || major == 6 && minor < 16 {
		return fail(name, KernelTooOld, "kernel "+release, fixSchedExt)
	}
	return pass(name, release)
}

// checkDenylist refuses 7.1: an attach that races with the creation of a PSI
// trigger deadlocks the node there (sched-ext/scx#3716).
func checkDenylist(release string) Check {
	const name = "no known deadlock in this kernel"
	if major, minor, _ := version(release); major == 7 && minor == 1 {
		return fail(name, KernelDenylisted, "kernel "+release, fixDenylisted)
	}
	return pass(name, release)
}

// checkKfuncs looks for kernels whose BTF shows the hidden argument of kfuncs:
// pahole was too old, and the verifier will not find their implementation.
func checkKfuncs(kernel *typeFacts) Check {
	const name = "sched_ext kfuncs in BTF"
	if kernel == nil {
		return fail(name, NoBTF, "no BTF to read", fixBTF)
	}
	if bad := kernel.malformedKfuncs; len(bad) > 0 {
		return fail(name, KfuncBTFMalformed, fmt.Sprintf("%d kfuncs show an argument that should be hidden: %s",
			len(bad), strings.Join(bad, ", ")), fixKfuncBTF)
	}
	return pass(name, "none malformed")
}

func checkCgroup() Check {
	const name = "cgroup v2 with the cpu controller"
	var fs unix.Statfs_t
	if err := unix.Statfs(cgroupDir, &fs); err != nil {
		return fail(name, CgroupV1, fmt.Sprintf("stat %s: %v", cgroupDir, err), fixCgroup)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return fail(name, CgroupV1, cgroupDir+" is not a cgroup2 file system", fixCgroup)
	}
	controllers, err := os.ReadFile(filepath.Join(cgroupDir, "cgroup.controllers"))
	if err != nil || !strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " cpu ") {
		return fail(name, CgroupV1, "the cpu controller is not on the unified hierarchy", fixCgroup)
	}
	return pass(name, cgroupDir)
}

// checkBPFFS looks at what the pin directory is below: a container has its bpffs
// mounted elsewhere than on /sys/fs/bpf, where it may not write.
func checkBPFFS(pinDir string) Check {
	const name = "bpffs to pin the scheduler in"
	dir := filepath.Dir(pinDir)
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	for errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &fs)
	}
	if isDenied(err) {
		return fail(name, Denied, fmt.Sprintf("stat %s: %v", dir, err), fixDenied)
	}
	if err != nil || fs.Type != unix.BPF_FS_MAGIC {
		return fail(name, NoBPFFS, dir+" is not a bpf file system", fixBPFFS)
	}
	return pass(name, dir)
}

// checkCapabilities looks at the effective set: CAP_SYS_ADMIN implies both in
// the kernel's eyes.
func checkCapabilities() Check {
	const name = "CAP_BPF and CAP_PERFMON"
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fail(name, MissingCapability, "read capabilities: "+err.Error(), fixCapability)
	}
	effective := uint64(data[0].Effective) | uint64(data[1].Effective)<<32
	has := func(c int) bool { return effective&(1<<c) != 0 }
	if has(unix.CAP_SYS_ADMIN) {
		return pass(name, "CAP_SYS_ADMIN, which includes both")
	}
	var missing []string
	if !has(unix.CAP_BPF) {
		missing = append(missing, "CAP_BPF")
	}
	if !has(unix.CAP_PERFMON) {
		missing = append(missing, "CAP_PERFMON")
	}
	if len(missing) > 0 {
		return fail(name, MissingCapability, "missing "+strings.Join(missing, " and "), fixCapability)
	}
	return pass(name, "both")
}

// describeLimits fails nowhere: it says how soon a CPU limit takes effect.
func describeLimits(kernel *typeFacts) Check {
	const name = "CPU limits (cpu.max)"
	if kernel != nil && kernel.tellsLimits {
		return pass(name, "the kernel tells of them: they take effect at once")
	}
	return pass(name, "this kernel does not tell of them, 6.17 does: temper run reads them once a second")
}

func checkForeign() Check {
	const name = "no other sched_ext scheduler"
	state, err := readSysfs()
	if err != nil {
		return pass(name, "none")
	}
	if state.Kernel == "enabled" && !IsOurs(state.Ops) {
		return fail(name, ForeignScheduler, fmt.Sprintf("%q is loaded", state.Ops), fixForeign)
	}
	return pass(name, "none")
}

// loadError puts the library's errors into our words: without one of the
// capabilities it speaks of memlock limits and missing BTF.
func loadError(err error) error {
	if c := checkCapabilities(); !c.OK {
		return &Error{Reason: c.Reason, Fix: c.Fix, Err: fmt.Errorf("%s: %w", c.Detail, err)}
	}
	if isDenied(err) {
		return &Error{Reason: Denied, Fix: fixDenied, Err: fmt.Errorf("load object: %w", err)}
	}
	if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		return &Error{Reason: VerifierRejected, Fix: fixVerifier, Err: fmt.Errorf("load object: %w", verifier)}
	}
	return &Error{Reason: VerifierRejected, Fix: fixVerifier, Err: fmt.Errorf("load object: %w", err)}
}

// isDenied tells a call that this process may not make from an object that the
// verifier refuses: the numbers are the same, but the verifier writes a log.
func isDenied(err error) bool {
	if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok && len(verifier.Log) > 0 {
		return false
	}
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

func pinDirError(err error) error {
	err = fmt.Errorf("create pin directory: %w", err)
	if isDenied(err) {
		return &Error{Reason: Denied, Fix: fixDenied, Err: err}
	}
	return &Error{Reason: NoBPFFS, Fix: fixBPFFS, Err: err}
}

// reasonOf gives what Attach returns a reason, if nobody knew a better one.
// That it was told to end is none.
func reasonOf(err error) error {
	_, known := errors.AsType[*Error](err)
	switch {
	case known || err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case isDenied(err):
		return &Error{Reason: Denied, Fix: fixDenied, Err: err}
	}
	return &Error{Reason: AttachFailed, Fix: "what the message says; if it says nothing to do, " + fixVerifier, Err: err}
}

func attachError(err error) error {
	if errors.Is(err, unix.EBUSY) {
		detail := "another scheduler was loaded meanwhile"
		if state, stateErr := readSysfs(); stateErr == nil && state.Ops != "" {
			detail = fmt.Sprintf("%q is loaded", state.Ops)
		}
		return &Error{Reason: ForeignScheduler, Fix: fixForeign, Err: fmt.Errorf("attach: %s: %w", detail, err)}
	}
	return fmt.Errorf("attach: %w", err)
}

func kernelRelease() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(uts.Release[:])
}
