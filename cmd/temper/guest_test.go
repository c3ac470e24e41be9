// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/agent/agenttest"
	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/sched"
)

// Bounds on an emulated machine that shares its host; on metal each is far smaller.
const (
	attachWithin = 3 * time.Minute  // load, verify, attach
	settleWithin = 10 * time.Second // a state that the kernel is on the way to
	noticeWithin = time.Second      // the promise about ejects
)

// requireGuest skips a test that changes its machine's scheduler, unless that
// machine is a guest. REQUIRE_ALL=1 makes the skip a failure.
func requireGuest(t *testing.T) {
	t.Helper()
	switch {
	case os.Getenv("TEMPER_GUEST") == "1":
	case os.Getenv("REQUIRE_ALL") == "1":
		t.Fatal("needs a guest: run it by make guest")
	default:
		t.Skip("needs a guest: run it by make guest")
	}
}

// process is a temper in the background.
type process struct {
	*exec.Cmd
	lines  chan string // of its standard output
	errors agenttest.Transcript
	ended  chan struct{}
	code   int
}

// start runs temper until it ends or the test does.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), "temper", args...), lines: make(chan string, 100), ended: make(chan struct{})}
	p.Stderr = &p.errors
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go p.follow(out)
	t.Cleanup(func() { <-p.ended })
	return p
}

func (p *process) follow(out io.Reader) {
	defer close(p.ended)
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		p.lines <- scanner.Text()
	}
	close(p.lines)
	_ = p.Wait() // the exit code says it
	p.code = p.ProcessState.ExitCode()
}

// says waits for a line that starts like that.
func (p *process) says(t *testing.T, prefix string) {
	t.Helper()
	timeout := time.After(attachWithin)
	for {
		select {
		case line, more := <-p.lines:
			if strings.HasPrefix(line, prefix) {
				return
			}
			if !more {
				<-p.ended
				t.Fatalf("ended with %d before it said %q: %s", p.code, prefix, p.errors.String())
			}
		case <-timeout:
			t.Fatalf("did not say %q within %v: %s", prefix, attachWithin, p.errors.String())
		}
	}
}

// ends waits for the exit code.
func (p *process) ends(t *testing.T, want int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(settleWithin):
		t.Fatalf("still runs after %v", settleWithin)
	}
	if p.code != want {
		t.Fatalf("exit code %d, want %d: %s", p.code, want, p.errors.String())
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// command runs temper to its end and expects that exit code.
func command(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "temper", args...) // also called by cleanups
	cmd.Stdout, cmd.Stderr = &out, &err
	if failed := cmd.Run(); failed != nil {
		if _, exited := errors.AsType[*exec.ExitError](failed); !exited {
			t.Fatal(failed)
		}
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("temper %s: exit code %d, want %d:\n%s%s", strings.Join(args, " "), got, want, out.String(), err.String())
	}
	return out.String(), err.String()
}

func readStatus(t *testing.T, want int) status {
	t.Helper()
	out, _ := command(t, want, "status", "-o", "json")
	var s status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return s
}

// eventually waits until what holds: the kernel detaches in its own time.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func kernelState(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/sys/kernel/sched_ext/state")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// testPlan makes cgroups for the test and writes a plan that names them.
func testPlan(t *testing.T) (file string) {
	t.Helper()
	for _, name := range []string{"temper-test", "temper-test/front", "temper-test/batch", "temper-test/batch/one"} {
		dir := filepath.Join(cgroup.Root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
	return writePlan(t, `groups:
  - {cgroup: /temper-test/front, tier: critical}
  - {cgroup: /temper-test/batch/*, tier: background}
`)
}

func writePlan(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// runPlan starts run and waits until its plan is in force.
func runPlan(t *testing.T, args ...string) *process {
	t.Helper()
	p := start(t, append([]string{"run", "-f", testPlan(t)}, args...)...)
	p.says(t, "temper: attached")
	t.Cleanup(func() { command(t, exitOK, "stop") })
	return p
}

func TestGuestDoctor(t *testing.T) {
	requireGuest(t)
	if os.Getenv("TEMPER_EXPECT") != "" {
		t.Skip("TestRefusedKernel is for this guest's kernel")
	}
	if out, _ := command(t, exitOK, "doctor"); strings.Contains(out, "FAIL") {
		t.Errorf("doctor fails a kernel that must do:\n%s", out)
	}
}

// TestRefusedKernel runs on kernels that cannot do: TEMPER_EXPECT is the reason
// that doctor must name.
func TestRefusedKernel(t *testing.T) {
	want := os.Getenv("TEMPER_EXPECT")
	if want == "" {
		t.Skip("TEMPER_EXPECT names no reason: this machine's kernel is no fixture")
	}
	requireGuest(t)
	out, _ := command(t, exitUnfit, "doctor", "-o", "json")
	var checks []sched.Check
	if err := json.Unmarshal([]byte(out), &checks); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(checks, func(c sched.Check) bool { return !c.OK })
	if at < 0 || string(checks[at].Reason) != want || checks[at].Fix == "" {
		t.Errorf("doctor does not name %s first, with a way out:\n%s", want, out)
	}
	// run says the same, and the node stays as it was.
	if _, err := command(t, exitUnfit, "run", "-f", testPlan(t)); !strings.Contains(err, want) || !strings.Contains(err, "try: ") {
		t.Errorf("run says %q", err)
	}
	command(t, exitNotAttached, "status")
	command(t, exitOK, "stop")
}

func TestGuestRunAndStop(t *testing.T) {
	requireGuest(t)
	command(t, exitNotAttached, "status")
	p := runPlan(t)
	before := readStatus(t, exitOK)
	if before.Generation != 1 || before.Scheduler != "temper" || len(before.Plan.Groups) != 2 || before.Plan.Groups[0].Cgroup != "/temper-test/front" {
		t.Errorf("status = %+v, plan %+v", before, before.Plan)
	}
	command(t, exitBusy, "run", "-f", testPlan(t))
	command(t, exitOK, "doctor")

	// A refused plan changes nothing; an accepted one does, without an attach.
	bad := writePlan(t, "groups: [{cgroup: /nowhere, tier: vip}]\n")
	if _, err := command(t, exitPlan, "apply", "-f", bad); !strings.Contains(err, "plan.yaml:1: unknown tier") || !strings.Contains(err, "/nowhere") {
		t.Errorf("apply says %q", err)
	}
	if s := readStatus(t, exitOK); s.Generation != 1 {
		t.Errorf("generation %d after a refused plan", s.Generation)
	}
	next := writePlan(t, "lend: landing\ngroups: [{cgroup: /temper-test/front, tier: standard}]\n")
	if out, _ := command(t, exitOK, "apply", "-f", next); !strings.Contains(out, "remove /temper-test/batch/*") {
		t.Errorf("apply says %q", out)
	}
	if s := readStatus(t, exitOK); s.Generation != 2 || s.EnableSeq != before.EnableSeq || s.Plan.Lend.String() != "landing" {
		t.Errorf("status after apply = %+v", s)
	}
	checkTop(t)

	command(t, exitOK, "stop")
	p.ends(t, exitOK)
	if s := readStatus(t, exitNotAttached); s.Kernel != "disabled" || s.Scheduler != "stock" {
		t.Errorf("status after stop = %+v", s)
	}
	noPins(t)
	command(t, exitOK, "stop")
}

func noPins(t *testing.T) {
	t.Helper()
	for _, dir := range []string{sched.DefaultPinDir, sched.DefaultProbeDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after stop: %v", dir, err)
		}
	}
}

// TestGuestStopAfterKill leaves nothing of a process that cleaned up nothing.
func TestGuestStopAfterKill(t *testing.T) {
	requireGuest(t)
	p := runPlan(t)
	p.signal(t, syscall.SIGKILL)
	p.ends(t, -1)
	command(t, exitOK, "stop")
	if s := readStatus(t, exitNotAttached); s.Kernel != "disabled" {
		t.Errorf("status after stop = %+v", s)
	}
	noPins(t)
}

// TestGuestStopAfterHalfAnAttach has a process killed when the scheduler ran and its
// pins had not got their name yet.
func TestGuestStopAfterHalfAnAttach(t *testing.T) {
	requireGuest(t)
	const staging = sched.DefaultPinDir + "_new"
	p := runPlan(t, "--measure=false")
	p.signal(t, syscall.SIGKILL)
	p.ends(t, -1)
	if err := os.Rename(sched.DefaultPinDir, staging); err != nil {
		t.Fatal(err)
	}
	command(t, exitOK, "stop")
	if got := kernelState(t); got != "disabled" {
		t.Errorf("the kernel says %q after stop", got)
	}
	if _, err := os.Stat(staging); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after stop: %v", staging, err)
	}
}

func checkTop(t *testing.T) {
	t.Helper()
	out, _ := command(t, exitOK, "top", "--once", "--interval", "500ms", "-o", "json")
	var v view.View
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	if v.Interval < 500*time.Millisecond || len(v.Tiers) != 4 || len(v.CPUs) == 0 || v.WaitBound <= 0 {
		t.Errorf("top = %s", out)
	}
	for _, c := range v.CPUs {
		var sum float64
		for _, share := range c.Share {
			sum += share
		}
		if sum < 0.9 || sum > 1.1 {
			t.Errorf("CPU %d: the buckets are %.3f of the interval: %v", c.CPU, sum, c.Share)
		}
	}
	if out, _ := command(t, exitOK, "top", "--once"); !strings.Contains(out, "background") {
		t.Errorf("top = %s", out)
	}
}

func TestGuestInterruptDetaches(t *testing.T) {
	requireGuest(t)
	p := runPlan(t)
	p.signal(t, syscall.SIGINT)
	p.says(t, "temper: detached")
	p.ends(t, exitOK)
	command(t, exitNotAttached, "status")
}

// TestGuestKillChangesNothing kills the process that watches: the scheduler
// stays, and the next process adopts it without an attach.
func TestGuestKillChangesNothing(t *testing.T) {
	requireGuest(t)
	p := runPlan(t)
	before := readStatus(t, exitOK)
	p.signal(t, syscall.SIGKILL)
	p.ends(t, -1)
	time.Sleep(2 * time.Second) // a link that is not pinned is gone in 1.2 s
	if s := readStatus(t, exitOK); s.EnableSeq != before.EnableSeq || s.Generation != before.Generation {
		t.Errorf("the kill changed %+v to %+v", before.State, s.State)
	}
	heir := start(t, "run", "-f", testPlan(t))
	heir.says(t, "temper: adopted")
	if s := readStatus(t, exitOK); s.EnableSeq != before.EnableSeq || s.Generation != before.Generation+1 {
		t.Errorf("adopting changed %+v to %+v", before.State, s.State)
	}
	heir.signal(t, syscall.SIGTERM)
	heir.ends(t, exitOK)
}

// TestGuestDeadMan stops the process that watches without killing it.
func TestGuestDeadMan(t *testing.T) {
	requireGuest(t)
	const deadMan = 5 * time.Second
	p := runPlan(t, "--dead-man", deadMan.String())
	p.signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	t.Cleanup(func() { _ = p.Process.Signal(syscall.SIGCONT) })
	eventually(t, deadMan+settleWithin, "the dead-man detaches", func() bool { return kernelState(t) == "disabled" })
	// The last heartbeat is older than the stop, by a tenth where time is not short.
	if after := time.Since(stopped); after < deadMan/2 {
		t.Errorf("the dead-man of %v went off after %v", deadMan, after)
	}
	if s := readStatus(t, exitNotAttached); s.Exit == nil || s.Exit.Reason != sched.AgentStale {
		t.Errorf("status = %+v", s.State)
	}
	p.signal(t, syscall.SIGCONT)
	p.ends(t, exitEjected)
	if !strings.Contains(p.errors.String(), "AgentStale") {
		t.Errorf("run says %q", p.errors.String())
	}
}

// TestGuestDeadManAfterKill leaves the scheduler alone for longer than it waits.
func TestGuestDeadManAfterKill(t *testing.T) {
	requireGuest(t)
	p := runPlan(t, "--dead-man", "2s")
	p.signal(t, syscall.SIGKILL)
	p.ends(t, -1)
	eventually(t, settleWithin, "the dead-man detaches", func() bool { return kernelState(t) == "disabled" })
	// The next one cleans up and attaches anew.
	next := start(t, "run", "-f", testPlan(t))
	next.says(t, "temper: attached")
	next.signal(t, syscall.SIGINT)
	next.ends(t, exitOK)
}

func TestGuestSysRq(t *testing.T) {
	requireGuest(t)
	p := runPlan(t)
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("S"), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleWithin, "SysRq-S detaches", func() bool { return kernelState(t) == "disabled" })
	eventually(t, noticeWithin, "run says why", func() bool { return strings.Contains(p.errors.String(), "EjectedSysRq") })
	p.ends(t, exitEjected)
	if s := readStatus(t, exitNotAttached); s.Exit == nil || s.Exit.Reason != sched.EjectedSysRq {
		t.Errorf("status = %+v", s.State)
	}
}

// TestGuestNewCgroup removes a cgroup and makes it again, as a restart of a
// systemd service does.
func TestGuestNewCgroup(t *testing.T) {
	requireGuest(t)
	runPlan(t)
	before := readStatus(t, exitOK)
	dir := filepath.Join(cgroup.Root, "temper-test/front")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleWithin, "the plan follows the new cgroup", func() bool {
		s := readStatus(t, exitOK)
		return s.Generation == before.Generation+1 && s.Plan.Groups[0].ID != before.Plan.Groups[0].ID
	})
}
