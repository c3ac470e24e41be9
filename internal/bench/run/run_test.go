// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/guest"
)

func campaign(t *testing.T) *Campaign {
	t.Helper()
	ladder, err := scenarios.Find("memcached-ladder")
	if err != nil {
		t.Fatal(err)
	}
	return &Campaign{
		Scenario: ladder, Arms: bench.Arms(), Seed: 7, Topology: "1s4c1t", Kernel: "7.2",
		Node: "/build/temper-lab-node", Temper: "/build/temper", Commit: "abc",
	}
}

func TestArmsDifferOnlyInWhatTheySay(t *testing.T) {
	c := campaign(t)
	var machines []guest.Machine
	for _, arm := range c.Arms {
		cmd, err := c.command(arm)
		if err != nil {
			t.Fatal(err)
		}
		var spec node.Spec
		if err := json.NewDecoder(cmd.Stdin).Decode(&spec); err != nil || spec.Arm.Name != arm.Name || spec.CPUs != 4 || spec.Seed != 7 {
			t.Errorf("%s: the guest is told %+v, %v", arm.Name, spec, err)
		}
		machines = append(machines, cmd.Machine)
	}
	if !slices.Equal(machines[1].Append, []string{"preempt=full"}) || len(machines[0].Append)+len(machines[3].Append) > 0 {
		t.Errorf("kernel lines: %q %q %q", machines[0].Append, machines[1].Append, machines[3].Append)
	}
	if machines[0].Files[temperPath] != "" || machines[3].Files[temperPath] != "/build/temper" {
		t.Errorf("files: %v and %v", machines[0].Files, machines[3].Files)
	}
	for _, m := range machines {
		if m.Mode != guest.Deterministic || m.Seed != 7 || m.Kernel != "7.2" {
			t.Errorf("machine %+v", m)
		}
	}
	c.Topology = "4cpus"
	if _, err := c.command(c.Arms[0]); err == nil {
		t.Error("a topology that is none was accepted")
	}
}

// sample is a window such as a node reports it, good but for the scheduler.
func sample(step bench.Step) *bench.Window {
	w := &bench.Window{Step: step, IdleBefore: 1, Sched: []bench.SchedSample{{State: "disabled"}, {State: "disabled"}}}
	w.Primary.Latency, w.Primary.Lag = bench.NewHist(), bench.NewHist()
	w.Primary.Latency.Record(time.Millisecond)
	w.Primary.Requests, w.Primary.Offered = 1, step.Rate
	w.Ledger = bench.Ledger{Length: time.Second, CPUs: 4, PodCPUs: 3, Idle: 4 * time.Second}
	return w
}

func TestWindowsBecomeRecords(t *testing.T) {
	c := campaign(t)
	var file bytes.Buffer
	var seen []Update
	s := &sink{file: &file, progress: func(u Update) { seen = append(seen, u) }}
	r := &armRun{campaign: c, arm: c.Arms[3], order: 2, sink: s, started: time.Now(), cmd: guest.Command(guest.Machine{}, "/x")}
	var events bytes.Buffer
	out := json.NewEncoder(&events)
	for _, e := range []node.Event{
		{Hello: &node.Hello{Kernel: "7.2.13", Cmdline: "quiet"}}, {Progress: "settled"}, {Window: sample(c.Scenario.Steps()[0])}, {Window: sample(c.Scenario.Steps()[3])},
	} {
		if err := out.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.listen(&events); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 4 || seen[3].Record == nil || seen[3].Record.Window.Step.Density != 4 {
		t.Errorf("progress: %+v", seen)
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	records, err := bench.ReadRecords(&file)
	if err != nil || len(records) != 2 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	rec := records[1]
	if rec.Machine.Kernel != "7.2.13" || rec.Arm.Name != "temper" || rec.Order != 2 || rec.Commit != "abc" || rec.Seed != 7 {
		t.Errorf("record %+v", rec)
	}
	// The temper arm's windows ran under the kernel's own scheduler.
	if rec.Verdict.Valid || !strings.Contains(rec.Verdict.Reasons[0], "expected temper") {
		t.Errorf("verdict %+v", rec.Verdict)
	}
}

func TestBrokenEventEndsTheRun(t *testing.T) {
	r := &armRun{campaign: campaign(t), sink: &sink{file: io.Discard}}
	if err := r.listen(strings.NewReader("{\"progress\":\"a\"}\npanic: oops")); err == nil || !strings.Contains(err.Error(), "read event") {
		t.Errorf("error %v", err)
	}
}

func TestShorten(t *testing.T) {
	got := shorten([]string{"-kernel", "/var/cache/temper/vmlinux", "-chardev", "file,id=console,path=/tmp/x/console", "-plugin", "/a/clock.so,stats=on", "-smp", "4,sockets=1"})
	want := []string{"-kernel", "vmlinux", "-chardev", "file,id=console,path=console", "-plugin", "clock.so,stats=on", "-smp", "4,sockets=1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestCPUModel(t *testing.T) {
	if got := cpuModel("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n", "amd64"); got != "Some CPU @ 3 GHz" {
		t.Errorf("got %q", got)
	}
	if got := cpuModel("CPU part : 0xd0c\n", "arm64"); got != "arm64" {
		t.Errorf("got %q", got)
	}
}
