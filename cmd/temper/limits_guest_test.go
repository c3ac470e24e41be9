// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/cgroup"
)

// busyIn runs a thread that never sleeps in a cgroup until the test ends.
func busyIn(t *testing.T, dir string) {
	t.Helper()
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// TestGuestLimits sets a limit under a scheduler that runs, and looks at it from
// another process.
func TestGuestLimits(t *testing.T) {
	requireGuest(t)
	p := runPlan(t)
	for _, parent := range []string{"", "temper-test"} {
		control := filepath.Join(cgroup.Root, parent, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("+cpu"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(cgroup.Root, "temper-test/front")
	limit := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ofFront := func() (l limitStatus) {
		t.Helper()
		limits := readStatus(t, exitOK).Limits
		if i := slices.IndexFunc(limits, func(l limitStatus) bool { return l.Cgroup == "/temper-test/front" }); i >= 0 {
			l = limits[i]
		}
		return l
	}
	limit("20000 100000")
	busyIn(t, dir)
	eventually(t, settleWithin, "status shows that the limit paces", func() bool {
		l := ofFront()
		return l.Limit == 0.2 && l.PacedPeriods > 0 && l.Used > 0 && l.KernelUsage > 0
	})
	out, _ := command(t, exitOK, "top", "--once", "--interval", "500ms", "-o", "json")
	var v view.View
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Limits) != 1 || v.Limits[0].PacedShare == 0 || v.Limits[0].CPUs == 0 || v.LimitsNotHeld != 0 {
		t.Errorf("top = %+v, %d not held", v.Limits, v.LimitsNotHeld)
	}

	// This kernel tells of limits, so that one is no reason to refuse a plan.
	strict := writePlan(t, "cpuMax: refuse\ngroups: [{cgroup: /temper-test/front, tier: critical}]\n")
	command(t, exitOK, "apply", "-f", strict)

	limit("max 100000")
	eventually(t, settleWithin, "status shows that it is lifted", func() bool {
		l := ofFront()
		return l.ID != 0 && l.Limit == 0 && l.Waiting == 0
	})
	command(t, exitOK, "stop")
	p.ends(t, exitOK)
}
