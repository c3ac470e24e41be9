// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/guest"
)

// campaign is of two seeds and four base arms, with programs that are files.
func campaign(t *testing.T) *Campaign {
	t.Helper()
	ladder, err := scenarios.Find("memcached-ladder")
	if err != nil {
		t.Fatal(err)
	}
	ladder.Points, ladder.Densities = ladder.Points[:1], []int{0, 4}
	dir := t.TempDir()
	c := &Campaign{
		Scenario: ladder, Arms: bench.Arms()[:4], SeedFirst: 7, Seeds: 2, Place: OnGuest, Topology: "1s4c1t", Kernel: "7.2",
		Node: filepath.Join(dir, "temper-lab-node"), Temper: filepath.Join(dir, "temper"), Commit: "abc", Dir: filepath.Join(dir, "records"),
	}
	for _, program := range []string{c.Node, c.Temper} {
		if err := os.WriteFile(program, []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestArmsDifferOnlyInWhatTheySay(t *testing.T) {
	c := campaign(t)
	var machines []guest.Machine
	for _, arm := range c.Arms {
		cmd, err := c.command(job{arm: arm, seed: 7})
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
	if machines[0].Files[temperPath] != "" || machines[3].Files[temperPath] != c.Temper {
		t.Errorf("files: %v and %v", machines[0].Files, machines[3].Files)
	}
	for _, m := range machines {
		if m.Mode != guest.Deterministic || m.Seed != 7 || m.Kernel != "7.2" || !slices.Equal(m.Packages, []string{"memcached"}) {
			t.Errorf("machine %+v", m)
		}
	}
	c.Topology = "4cpus"
	if _, err := c.command(job{arm: c.Arms[0]}); err == nil {
		t.Error("a topology that is none was accepted")
	}
}

// The A/A control is another guest that is asked the same.
func TestAgainChangesTheGuestsSeedAlone(t *testing.T) {
	c := campaign(t)
	again, err := bench.ParseArm("eevdf:again")
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := c.command(job{arm: again, seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	var spec node.Spec
	if err := json.NewDecoder(cmd.Stdin).Decode(&spec); err != nil || spec.Seed != 7 || cmd.Machine.Seed == 7 {
		t.Errorf("client's seed %d, guest's %d, %v", spec.Seed, cmd.Machine.Seed, err)
	}
}

func TestAUsersSchedulerIsBrought(t *testing.T) {
	c := campaign(t)
	config := filepath.Join(t.TempDir(), "layers.json")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	arm, err := bench.ParseArm("exec:" + self)
	if err != nil {
		t.Fatal(err)
	}
	arm.Exec.Args, arm.Exec.Config = []string{"f:{config}"}, config
	if err := Describe(arm.Exec); err != nil || len(arm.Exec.SHA256) != 64 || len(arm.Exec.ConfigSHA256) != 64 {
		t.Fatalf("%+v, %v", arm.Exec, err)
	}
	cmd, err := c.command(job{arm: arm, seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	var spec node.Spec
	text, _ := io.ReadAll(cmd.Stdin)
	if err := json.Unmarshal(text, &spec); err != nil || cmd.Machine.Files[spec.Exec] != self || cmd.Machine.Files[spec.ExecConfig] != config {
		t.Errorf("files %v, spec %+v, %v", cmd.Machine.Files, spec, err)
	}
	if strings.Contains(string(text), config) {
		t.Error("the guest is told where the file lies on this machine")
	}
}

func TestParseLibraries(t *testing.T) {
	got := parseLibraries("\tlinux-vdso.so.1 (0x00007ffd)\n\tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x7f)\n")
	if !slices.Equal(got, []string{"/lib/x86_64-linux-gnu/libelf.so.1", "/lib64/ld-linux-x86-64.so.2"}) {
		t.Errorf("got %q", got)
	}
}

func TestJobsCoverEveryArmAndSeedOnce(t *testing.T) {
	c := campaign(t)
	c.Seeds = 8
	seen := map[string]int{}
	first := map[string]int{}
	for i, j := range c.jobs() {
		if j.order != i {
			t.Errorf("job %d has order %d", i, j.order)
		}
		seen[j.arm.Name]++
		if i%len(c.Arms) == 0 {
			first[j.arm.Name]++
		}
		if j.seed < 7 || j.seed > 14 {
			t.Errorf("seed %d", j.seed)
		}
	}
	for _, a := range c.Arms {
		if seen[a.Name] != 8 || first[a.Name] != 2 {
			t.Errorf("%s: %d runs, %d times first", a.Name, seen[a.Name], first[a.Name])
		}
	}
}

// sample is a window such as a node reports it, good but for the scheduler.
func sample(s bench.Scenario, step int) *bench.Window {
	w := &bench.Window{Step: s.Steps()[step], IdleBefore: 1, Sched: []bench.SchedSample{{State: "disabled"}, {State: "disabled", At: s.Load.Window}}}
	w.Primary.Latency, w.Primary.Lag = bench.NewHist(), bench.NewHist()
	w.Primary.Requests = int(w.Step.Rate * s.Load.Window.Seconds())
	w.Primary.Latency.RecordN(time.Millisecond, int64(w.Primary.Requests))
	w.Primary.Offered = w.Step.Rate
	length := s.Load.Counted()
	w.Realtime, w.Ledger = length, bench.Ledger{Length: length, CPUs: 4, PodCPUs: 3, Idle: 4 * length}
	return w
}

func TestWindowsBecomeRecords(t *testing.T) {
	c := campaign(t)
	var seen []Update
	c.Progress = func(u Update) { seen = append(seen, u) }
	a := &attempt{Campaign: c, job: job{arm: c.Arms[3], seed: 7, order: 2}, build: bench.Build{Go: "go1"}, have: []int{0}, started: time.Now()}
	var events bytes.Buffer
	out := json.NewEncoder(&events)
	for _, e := range []node.Event{
		{Hello: &node.Hello{Kernel: "7.2.13", Cmdline: "quiet"}}, {Progress: "settled"}, {Window: sample(c.Scenario, 0)}, {Window: sample(c.Scenario, 1)},
	} {
		if err := out.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.listen(&events); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 3 || seen[2].Record == nil || seen[2].Record.Window.Step.Density != 4 || a.told != 2 {
		t.Errorf("progress: %+v, told %d", seen, a.told)
	}
	if len(a.held) != 1 {
		t.Fatalf("%d records: the step that was there is measured once", len(a.held))
	}
	rec := a.held[0]
	if rec.Machine.Kernel != "7.2.13" || rec.Arm.Name != "temper" || rec.Order != 2 || rec.Commit != "abc" || rec.Seed != 7 || rec.Build.Go != "go1" || rec.Campaign != "records" {
		t.Errorf("record %+v", rec)
	}
	if !slices.Equal(rec.Plan.Arms, []string{"eevdf", "eevdf-tuned", "static", "temper"}) || rec.Plan.SeedFirst != 7 || rec.Plan.Seeds != 2 {
		t.Errorf("plan %+v", rec.Plan)
	}
	// The temper arm's windows ran under the kernel's own scheduler.
	if rec.Verdict.Valid || !strings.Contains(rec.Verdict.Reasons[0], "expected temper") {
		t.Errorf("verdict %+v", rec.Verdict)
	}
}

// measured makes the node's program one that only says what it measured, on
// "this machine": under the first kernel when called first, then under the other.
// It returns a function that counts the calls.
func measured(t *testing.T, c *Campaign, first, then string) (calls func() int) {
	t.Helper()
	c.Place = OnHost
	dir := t.TempDir()
	counted := filepath.Join(dir, "calls")
	for i, kernel := range []string{first, then} {
		var events bytes.Buffer
		out := json.NewEncoder(&events)
		err := out.Encode(node.Event{Hello: &node.Hello{Kernel: kernel}})
		for step := range c.Scenario.Steps() {
			err = errors.Join(err, out.Encode(node.Event{Window: sample(c.Scenario, step)}))
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, []string{"first", "then"}[i]), events.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\ncd " + dir + "\nif test -e calls; then cat then; else cat first; fi\necho >>calls\n"
	if err := os.WriteFile(c.Node, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return func() int {
		text, err := os.ReadFile(counted)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return bytes.Count(text, []byte("\n"))
	}
}

// What ended a guest is told, not that its last event was cut off by it.
func TestCauseOfAFailedRun(t *testing.T) {
	panicked := &guest.PanicError{Console: "Oops"}
	broken := errors.New("read event: invalid character")
	cut := (&attempt{Campaign: campaign(t)}).listen(strings.NewReader(`{"progress":"a`))
	for name, tc := range map[string]struct{ ran, heard, want error }{
		"neither":                {nil, nil, nil},
		"guest":                  {panicked, nil, panicked},
		"guest within an event":  {panicked, cut, panicked},
		"event":                  {nil, cut, cut},
		"event that made it end": {&guest.TimeoutError{Cause: broken}, broken, broken},
	} {
		if got := cause(tc.ran, tc.heard); !errors.Is(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestACampaignHasItsDirectorysName(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"out/a": "a", "out/a/": "a", ".": filepath.Base(here)} {
		if got := (&Campaign{Dir: dir}).name(); got != want {
			t.Errorf("%s: got %s, want %s", dir, got, want)
		}
	}
}

func TestBrokenEventEndsTheRun(t *testing.T) {
	a := &attempt{Campaign: campaign(t)}
	if err := a.listen(strings.NewReader("{\"progress\":\"a\"}\npanic: oops")); err == nil || !strings.Contains(err.Error(), "read event") {
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
