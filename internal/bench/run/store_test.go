// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

// records are what a run of j measures: all steps, or those given.
func records(t *testing.T, c *Campaign, j job, steps ...int) []bench.Record {
	t.Helper()
	builds, err := c.builds()
	if err != nil {
		t.Fatal(err)
	}
	a := &attempt{Campaign: c, job: j, build: builds[j.arm.Name]}
	var out []bench.Record
	for i := range c.Scenario.Steps() {
		if len(steps) == 0 || slices.Contains(steps, i) {
			out = append(out, a.record(sample(c.Scenario, i)))
		}
	}
	return out
}

// keep opens c's store, adds records and closes it.
func keep(t *testing.T, c *Campaign, recs []bench.Record) {
	t.Helper()
	s, err := openStore(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.add(recs), s.close()); err != nil {
		t.Fatal(err)
	}
}

func TestACampaignGoesOnWhereItEnded(t *testing.T) {
	c := campaign(t)
	jobs := c.jobs()
	if todo, err := c.Todo(); err != nil || todo.Runs != 8 || todo.Windows != 16 || todo.HaveWin != 0 {
		t.Fatalf("todo %+v, %v", todo, err)
	}
	keep(t, c, records(t, c, jobs[0]))
	keep(t, c, records(t, c, jobs[5], 1))
	if todo, err := c.Todo(); err != nil || todo.Runs != 7 || todo.Windows != 13 || todo.HaveRuns != 1 || todo.HaveWin != 3 {
		t.Errorf("todo %+v, %v", todo, err)
	}
	// One more seed is more of the same campaign.
	c.Seeds = 3
	if todo, err := c.Todo(); err != nil || todo.Runs != 11 || todo.HaveWin != 3 {
		t.Errorf("todo with another seed %+v, %v", todo, err)
	}
}

func TestOneDirectoryNeverHoldsTwoSorts(t *testing.T) {
	for name, change := range map[string]func(*Campaign){
		"described otherwise": func(c *Campaign) { c.Scenario.Load.Keys++ },
		"eevdf of another build": func(c *Campaign) {
			if err := os.WriteFile(c.Node, []byte("new"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		c := campaign(t)
		keep(t, c, records(t, c, c.jobs()[0]))
		change(c)
		if _, err := c.Todo(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "another directory") {
			t.Errorf("%s: error %v", name, err)
		}
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: run gave error %v", name, err)
		}
	}
	// Another temper changes nothing for arms that do not run it.
	c := campaign(t)
	keep(t, c, records(t, c, c.jobs()[0]))
	if err := os.WriteFile(c.Temper, []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	if todo, err := c.Todo(); err != nil || todo.HaveRuns != 1 {
		t.Errorf("with a new temper: %+v, %v", todo, err)
	}
	// Another topology is another table.
	c.Topology, c.Scenario.Topology = "1s2c2t", "1s2c2t"
	if todo, err := c.Todo(); err != nil || todo.HaveRuns != 0 {
		t.Errorf("on another topology: %+v, %v", todo, err)
	}
}

func TestAnUpdatedMachineIsRefused(t *testing.T) {
	c := campaign(t)
	keep(t, c, records(t, c, c.jobs()[0]))
	s, err := openStore(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	other := records(t, c, c.jobs()[1])
	other[0].Machine.KernelPackage = "linux-image 7.2.14"
	if err := s.add(other); err == nil || !strings.Contains(err.Error(), "kernel package was") {
		t.Errorf("error %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if todo, err := c.Todo(); err != nil || todo.HaveRuns != 1 {
		t.Errorf("a refused run left something: %+v, %v", todo, err)
	}
}

func TestACutOffLineIsKeptAside(t *testing.T) {
	c := campaign(t)
	keep(t, c, records(t, c, c.jobs()[0]))
	path := filepath.Join(c.Dir, bench.RecordFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const cut = `{"schema":2,"scen`
	if err := os.WriteFile(path, append(slices.Clone(whole), cut...), 0o644); err != nil {
		t.Fatal(err)
	}
	if todo, err := c.Todo(); err != nil || todo.HaveRuns != 1 {
		t.Errorf("todo %+v, %v", todo, err)
	}
	s, err := openStore(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.add(records(t, c, c.jobs()[1])), s.close()); err != nil {
		t.Fatal(err)
	}
	aside, err := os.ReadFile(s.torn)
	if err != nil || string(aside) != cut+"\n" {
		t.Errorf("kept %q, %v", aside, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := bench.ReadRecords(f); err != nil || len(got) != 4 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestTwoRunsDoNotShareADirectory(t *testing.T) {
	c := campaign(t)
	s, err := openStore(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(c.Dir); err == nil || !strings.Contains(err.Error(), "another run writes to it") {
		t.Errorf("error %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openStore(c.Dir); err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	_ = s.close()
}

func TestAStoreRefusesWhatIsNoRecord(t *testing.T) {
	for want, text := range map[string]string{
		"line 1":           "{\n",
		"schema 1":         "{\"schema\":1}\n",
		"line 1: scenario": "{\"schema\":2,\"scenario\":7}\n",
		"line 1: arm":      "{\"schema\":2,\"scenario\":{},\"arm\":[]}\n",
	} {
		c := campaign(t)
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.Dir, bench.RecordFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Todo(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestCompareDigests(t *testing.T) {
	c := campaign(t)
	recs := records(t, c, c.jobs()[0])
	want := map[int]string{}
	for i := range recs {
		if err := recs[i].Seal(); err != nil {
			t.Fatal(err)
		}
		want[i] = recs[i].Digest
	}
	recs[1].Window.Primary.Ops++ // measured otherwise
	want[9] = "gone"
	got, err := compare(want, recs)
	if err != nil || got.Same != 1 || !slices.Equal(got.Differ, []int{1}) || !slices.Equal(got.Missing, []int{9}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRerunRefusesRealTime(t *testing.T) {
	c := campaign(t)
	if _, err := c.Rerun(t.Context(), Again{Machine: bench.Machine{Clock: bench.ClockHost}}); err == nil || !strings.Contains(err.Error(), "real time never") {
		t.Errorf("error %v", err)
	}
}

func TestDifferencesNameWhatChanged(t *testing.T) {
	was := bench.Machine{Kernel: "7.2.13", Emulator: "QEMU 10.0.2", Packages: map[string]string{"memcached": "1.6.39", "libc6": "2.42"}, Cmdline: "quiet"}
	is := was
	is.Cmdline, is.InitrdSHA256 = "quiet preempt=full", "abc" // the arm's own
	if d := bench.Differences(was, is); len(d) > 0 {
		t.Errorf("got %q", d)
	}
	is.Emulator, is.Packages = "QEMU 10.1.0", map[string]string{"memcached": "1.6.40", "libc6": "2.42", "libz": "1"}
	got := strings.Join(bench.Differences(was, is), "\n")
	for _, want := range []string{`emulator was "QEMU 10.0.2", is "QEMU 10.1.0"`, `package memcached was "1.6.39", is "1.6.40"`, `package libz was "", is "1"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

func TestCheckHostNamesAllThatIsMissing(t *testing.T) {
	c := campaign(t)
	files := map[string]string{
		"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io\n", "/proc/schedstat": "version 17\n", "/sys/kernel/btf/vmlinux": "x",
		"/sys/kernel/sched_ext/state": "disabled\n", "/proc/cmdline": "quiet\n",
	}
	facts := func() hostFacts {
		return hostFacts{
			root: true, program: func(string) error { return nil },
			read: func(path string) (string, error) {
				text, ok := files[path]
				if !ok {
					return "", os.ErrNotExist
				}
				return text, nil
			},
		}
	}
	fits := []bench.Arm{c.Arms[0], c.Arms[3]}
	if err := checkHost(c.Scenario, fits, facts()); err != nil {
		t.Fatalf("a machine that has everything: %v", err)
	}
	if err := checkHost(c.Scenario, c.Arms, facts()); err == nil || !strings.Contains(err.Error(), "preempt=full on the kernel's command line: arm eevdf-tuned") {
		t.Errorf("error %v", err)
	}
	files["/sys/kernel/sched_ext/state"] = "enabled\n"
	if err := checkHost(c.Scenario, fits, facts()); err == nil || !strings.Contains(err.Error(), "its state is enabled") {
		t.Errorf("error %v", err)
	}
	bare := hostFacts{
		read:    func(string) (string, error) { return "", os.ErrNotExist },
		program: func(string) error { return os.ErrNotExist },
	}
	err := checkHost(c.Scenario, fits, bare)
	for _, want := range []string{"root:", "cgroup v2", "schedstat", "btf", "sched_ext: arm temper", "program memcached: apt install memcached"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	files["/sys/fs/cgroup/cgroup.controllers"] = "cpu io\n"
	if err := checkHost(c.Scenario, fits[:1], facts()); err == nil || !strings.Contains(err.Error(), "controller cpuset") {
		t.Errorf("error %v", err)
	}
}
