// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/topology"
)

// TestReasonOfWhatAttachMet: a call that is forbidden is neither a bpffs that is
// missing, nor the verifier's word, nor an eject.
func TestReasonOfWhatAttachMet(t *testing.T) {
	if c := checkCapabilities(); !c.OK {
		t.Skipf("not told from a capability that is missing: %s", c.Detail)
	}
	verifier := func(errno error, log ...string) error {
		return fmt.Errorf("program temper_enqueue: %w", &ebpf.VerifierError{Cause: errno, Log: log})
	}
	var cpus [maxCPUs]schedTemperCpuTopology
	_, _, _, tooMany := describeCPUs([]topology.CPU{{ID: maxCPUs}}, cpus[:], nil)
	for name, c := range map[string]struct {
		err  error
		want Reason
	}{
		"seccomp, of bpf()":                  {loadError(fmt.Errorf("map create: %w (MEMLOCK may be too low)", unix.EPERM)), Denied},
		"SELinux, of a program":              {loadError(verifier(unix.EACCES)), Denied},
		"the verifier, by the same number":   {loadError(verifier(unix.EACCES, "0: (79) r1 = *(u64 *)(r1 +8)", "invalid mem access 'scalar'")), VerifierRejected},
		"the verifier":                       {loadError(verifier(unix.EINVAL, "processed 9 insns")), VerifierRejected},
		"AppArmor, of mkdir":                 {pinDirError(&os.PathError{Op: "mkdir", Path: "/run/bpf/temper_new", Err: unix.EACCES}), Denied},
		"no bpffs":                           {pinDirError(&os.PathError{Op: "mkdir", Path: "/nowhere", Err: unix.ENOENT}), NoBPFFS},
		"AppArmor, of a pin":                 {fmt.Errorf("pin map controls: %w", unix.EACCES), Denied},
		"a pin for which there is no memory": {fmt.Errorf("pin map controls: %w", unix.ENOMEM), AttachFailed},
		"a node that is too large":           {tooMany, AttachFailed},
		"another scheduler, while pins go":   {errors.Join(attachError(unix.EBUSY), unix.EACCES), ForeignScheduler},
		"asked to end":                       {context.Canceled, ""},
		"nothing":                            {nil, ""},
	} {
		var got Reason
		if e, ok := errors.AsType[*Error](reasonOf(c.err)); ok {
			got = e.Reason
			if e.Fix == "" || e.Err == nil {
				t.Errorf("%s: %+v says no way out, or no cause", name, e)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestDeniedBPFFS: a directory that may not be looked into is not one that is no
// bpffs.
func TestDeniedBPFFS(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if c := checkBPFFS(filepath.Join(dir, "closed", "bpf", "temper")); c.Reason != NoBPFFS {
		t.Errorf("open to root: %+v", c)
	}
	var checked Check
	var made error
	asNobody(t, func() {
		checked = checkBPFFS(filepath.Join(dir, "closed", "bpf", "temper"))
		made = os.MkdirAll(filepath.Join(dir, "closed", "bpf"), 0o700)
	})
	if checked.Reason != Denied || checked.Fix != fixDenied {
		t.Errorf("closed: %+v", checked)
	}
	if e, ok := errors.AsType[*Error](pinDirError(made)); !ok || e.Reason != Denied {
		t.Errorf("made there: %v, %v", made, e)
	}
}

// asNobody runs f without the rights of root in the file system.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give its rights up")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const nobody = 65534
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
	}()
	f()
}
