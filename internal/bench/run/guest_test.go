// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/bench/work"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/topology"
)

// The programs that a machine is measured with are this test: the node's, the work on it,
// and a scheduler that a user brings.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch os.Args[1] {
	case "run":
		var spec node.Spec
		if err = json.NewDecoder(os.Stdin).Decode(&spec); err == nil {
			err = node.Run(ctx, spec, os.Stdout)
		}
	case "work":
		err = work.Run(ctx, os.Stdin, os.Stdout)
	case "schedule":
		err = schedule(ctx, os.Args[2:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// schedule is somebody's sched_ext scheduler: pinned, and detached when it is told to end, or
// so long after it attached as its argument says.
func schedule(ctx context.Context, args []string) error {
	leaves := time.Hour
	if len(args) > 0 {
		var err error
		if leaves, err = time.ParseDuration(args[0]); err != nil {
			return err
		}
	}
	cpus, err := topology.Read(os.DirFS(topology.Root))
	if err != nil {
		return err
	}
	s, err := sched.Attach(ctx, sched.Config{PinDir: "/sys/fs/bpf/somebodys", CPUs: cpus.CPUs})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(leaves):
	}
	return s.Detach()
}

// requireVirtualTime skips a test that takes over the machine that it runs on, and whose
// windows are valid however busy the host is.
func requireVirtualTime(t *testing.T) {
	t.Helper()
	if os.Getenv("TEMPER_GUEST") == "1" && os.Getenv("TEMPER_VIRTUAL_TIME") == "1" {
		return
	}
	const how = "needs virtual time: run it by make guest PKG=./internal/bench/run MODE=deterministic"
	if os.Getenv("REQUIRE_ALL") == "1" {
		t.Fatal(how)
	}
	t.Skip(how)
}

// onThisMachine is a campaign by --on host, of one seed and short windows.
func onThisMachine(t *testing.T, arms ...string) *Campaign {
	t.Helper()
	requireVirtualTime(t)
	burst, err := scenarios.Find("burst")
	if err != nil {
		t.Fatal(err)
	}
	burst.Densities, burst.Load.Window = []int{0, 4}, 200*time.Millisecond
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &Campaign{
		Scenario: burst, Seeds: 1, Place: OnHost, Node: self, Commit: "abc", Dir: filepath.Join(t.TempDir(), "records"),
	}
	if c.Topology, err = HostTopology(); err != nil {
		t.Fatal(err)
	}
	for _, name := range arms {
		arm, err := bench.ParseArm(strings.Replace(name, "SELF", self, 1))
		if err != nil {
			t.Fatal(err)
		}
		c.Arms = append(c.Arms, arm)
	}
	if err := CheckHost(c.Scenario, c.Arms); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nothingIsLeft(t) })
	return c
}

// nothingIsLeft fails if this machine is not as it was before it was measured.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup" + HostRoot); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cgroup %s: %v", HostRoot, err)
	}
	if state, err := os.ReadFile("/sys/kernel/sched_ext/state"); err != nil || string(state) != "disabled\n" {
		t.Errorf("sched_ext is %q, %v", state, err)
	}
}

// kept are the records that a campaign left.
func kept(t *testing.T, c *Campaign) []bench.Record {
	t.Helper()
	file, err := os.Open(filepath.Join(c.Dir, bench.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, err := bench.ReadRecords(file)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// By --on host: this machine's own kernel and CPUs, under its scheduler and one that a user brings.
func TestMeasuresThisMachine(t *testing.T) {
	c := onThisMachine(t, "eevdf", "exec:SELF")
	c.Arms[1].Exec.Args = []string{"schedule"}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := kept(t, c)
	if len(records) != 4 {
		t.Fatalf("%d records", len(records))
	}
	for _, r := range records {
		if !r.Verdict.Valid {
			t.Errorf("%s beside %d: void: %q", r.Arm.Name, r.Window.Step.Density, r.Verdict.Reasons)
		}
		if r.Machine.Clock != bench.ClockHost || r.Machine.Emulator != "" || r.Machine.Topology != "1s4c1t" || r.Machine.Kernel == "" {
			t.Errorf("machine %+v", r.Machine)
		}
		if ops := r.Window.Sched[0].Ops; (ops == sched.Name) != (r.Arm.Exec != nil) {
			t.Errorf("%s was measured under scheduler %q", r.Arm.Name, ops)
		}
		if got := r.Window.Primary.Latency.Count(); got < 50 {
			t.Errorf("%s: %d bursts", r.Arm.Name, got)
		}
	}
	if todo, err := c.Todo(); err != nil || todo.Runs != 0 {
		t.Errorf("to do %+v, %v", todo, err)
	}
}

// Windows in which the user's scheduler was gone do not count.
func TestSchedulerThatLeavesVoidsItsWindows(t *testing.T) {
	c := onThisMachine(t, "exec:SELF")
	c.Arms[0].Exec.Args = []string{"schedule", "700ms"}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := kept(t, c)
	if last := records[len(records)-1]; last.Verdict.Valid || !strings.Contains(strings.Join(last.Verdict.Reasons, "\n"), "scheduler at") {
		t.Errorf("verdict %+v", last.Verdict)
	}
}

func TestSchedulerThatRefusesIsHeard(t *testing.T) {
	c := onThisMachine(t, "exec:SELF")
	c.Arms[0].Exec.Args = []string{"schedule", "soon"}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ended without attaching") || !strings.Contains(err.Error(), `invalid duration "soon"`) {
		t.Errorf("error %v", err)
	}
}
