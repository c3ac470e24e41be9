// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// What could not be kept is known before anything is measured, and nothing is made.
func TestRecordsThatCannotBeKeptAreRefusedBefore(t *testing.T) {
	c := campaign(t)
	if _, err := c.Todo(); err != nil {
		t.Errorf("a directory that is to be made: %v", err)
	}
	if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking made %s: %v", c.Dir, err)
	}
	parent := filepath.Dir(c.Dir)
	if err := os.Chmod(parent, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(parent, 0o755) })
	denied := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread that is not root's ends with this
		const nobody, asBefore = 65534, ^uintptr(0)
		_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, nobody, asBefore, asBefore) // only root can, and must
		_, err := c.Todo()
		denied <- err
	}()
	if err := <-denied; !errors.Is(err, os.ErrPermission) {
		t.Errorf("below a directory that cannot be written to: %v", err)
	}
	c.Dir = filepath.Join(c.Node, "records") // below a file
	if _, err := c.Todo(); err == nil {
		t.Error("records below a file: no error")
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
	if todo, err := c.Todo(); err != nil || todo.HaveVoid != 3 { // these hold nothing, and so are void
		t.Errorf("void windows of before are forgotten: %+v, %v", todo, err)
	}
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
	// A client, a probe or a scheduler of another build is one for every arm.
	for name, program := range map[string]func(*Campaign) string{"its client": func(c *Campaign) string { return c.Node }, "its scheduler": func(c *Campaign) string { return c.Temper }} {
		c := campaign(t)
		i := slices.IndexFunc(c.jobs(), func(j job) bool { return j.arm.Ops == "temper" })
		keep(t, c, records(t, c, c.jobs()[i]))
		if err := os.WriteFile(program(c), []byte("new"), 0o755); err != nil {
			t.Fatal(err)
		}
		c.Arms = slices.DeleteFunc(slices.Clone(c.Arms), func(a bench.Arm) bool { return a.Name == "temper" })
		other, err := bench.ParseArm("temper:no-preempt")
		if err != nil {
			t.Fatal(err)
		}
		c.Arms = append(c.Arms, other)
		if _, err := c.Todo(); err == nil || !strings.Contains(err.Error(), "temper of another build") {
			t.Errorf("%s is new, and other arms go on beside: %v", name, err)
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

// Nothing is left to do, and yet what is there is not what was asked for.
func TestAFinishedDirectoryIsOfItsKernelAndPlace(t *testing.T) {
	for want, change := range map[string]func(*bench.Machine, *Campaign){
		`kernel "7.2", these would be of "7.3"`: func(_ *bench.Machine, c *Campaign) { c.Kernel = "7.3" },
		"were measured --on guest, these would be --on host": func(m *bench.Machine, c *Campaign) {
			m.Clock, c.Place = bench.ClockPerVCPU, OnHost
		},
		"were measured --on guest, these would be --on kvm": func(m *bench.Machine, c *Campaign) {
			m.Clock, m.Accel, c.Place = bench.ClockShared, "tcg", OnKVM
		},
		"were measured --on kvm, these would be --on guest": func(m *bench.Machine, _ *Campaign) { m.Clock, m.Accel = bench.ClockHost, "kvm" },
		"were measured --on kvm, these would be --on host": func(m *bench.Machine, c *Campaign) {
			m.Clock, m.Accel, c.Place = bench.ClockHost, "kvm", OnHost
		},
		"were measured --on host, these would be --on guest": func(m *bench.Machine, c *Campaign) { m.Clock, c.Scenario.Name = bench.ClockHost, "another" },
		`another machine: kernel was "6.1", is`: func(m *bench.Machine, c *Campaign) {
			m.Clock, m.Kernel, c.Place = bench.ClockHost, "6.1", OnHost
		},
	} {
		c := campaign(t)
		c.Arms, c.Seeds = c.Arms[:1], 1
		recs := records(t, c, c.jobs()[0])
		var m bench.Machine
		change(&m, c)
		for i := range recs {
			describe(&recs[i].Machine, m)
			recs[i].Machine.Kernel = m.Kernel
		}
		keep(t, c, recs)
		if _, err := c.Todo(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "use another directory") {
			t.Errorf("error %v, want %q", err, want)
		}
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
	other[0].Machine.KernelPackage, other[0].Machine.EmulatorArgs = "", []string{"-m", "4G"}
	if err := s.add(other); err == nil || !strings.Contains(err.Error(), `emulator's command line had "", has "-m 4G"; use another directory`) {
		t.Errorf("error %v", err)
	}
	other[0].Scenario.Name, other[0].Machine.Clock = "another", bench.ClockShared
	if err := s.add(other); err == nil || !strings.Contains(err.Error(), `these would be by "icount"; use another directory`) {
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

func TestARenamedDirectoryIsNotGoneOnWith(t *testing.T) {
	c := campaign(t)
	keep(t, c, records(t, c, c.jobs()[0]))
	renamed := c.Dir + "-2"
	if err := os.Rename(c.Dir, renamed); err != nil {
		t.Fatal(err)
	}
	c.Dir = renamed
	const want = "windows of campaign records: give it that name again, or use another directory"
	if _, err := c.Todo(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("run gave error %v", err)
	}
}

// What could not be kept is not measured.
func TestAnotherMachineIsRefusedBeforeItIsMeasured(t *testing.T) {
	for want, change := range map[string]func(*bench.Machine, *Campaign){
		"measured --on guest, these would be --on host": func(m *bench.Machine, c *Campaign) {
			m.Clock, c.Scenario.Name = bench.ClockPerVCPU, "another"
		},
		`another machine: kernel was "7.1"`: func(m *bench.Machine, _ *Campaign) { m.Kernel = "7.1" },
		`another machine: kernel's command line had "no`: func(m *bench.Machine, c *Campaign) {
			is, err := c.host()
			if err != nil {
				t.Fatal(err)
			}
			m.Kernel, m.Cmdline = is.Kernel, "no=word "+is.Cmdline
		},
	} {
		c := campaign(t)
		calls := measured(t, c, "7.1", "7.1")
		recs := records(t, c, c.jobs()[0])
		for i := range recs {
			recs[i].Machine.Clock = bench.ClockHost
			change(&recs[i].Machine, c)
		}
		keep(t, c, recs)
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if n := calls(); n > 0 {
			t.Errorf("%q was said after %d runs", want, n)
		}
	}
}

func TestNoRunFollowsOneThatIsNotKept(t *testing.T) {
	c := campaign(t)
	calls := measured(t, c, "7.1", "7.2")
	err := c.Run(t.Context())
	if !errors.Is(err, errNotKept) || !strings.Contains(err.Error(), `kernel was "7.1", is "7.2"`) {
		t.Errorf("error %v", err)
	}
	if n := calls(); n != 2 {
		t.Errorf("%d runs, want none after the second", n)
	}
	s, err := readStore(c.Dir)
	if err != nil || len(s.held) != len(c.Scenario.Steps()) {
		t.Errorf("%d windows, want the first run's, %v", len(s.held), err)
	}
}

// A disk that is full takes the beginning of what is written.
func TestAWriteCutShortLeavesNothing(t *testing.T) {
	c := campaign(t)
	recs := records(t, c, c.jobs()[0])
	keep(t, c, recs[:1])
	path := filepath.Join(c.Dir, bench.RecordFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	limited(t, len(before)+100, func() {
		if err := s.add(recs[1:]); !errors.Is(err, unix.EFBIG) || !errors.Is(err, errNotKept) {
			t.Errorf("error %v", err)
		}
	})
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%d bytes, want the %d before, %v", len(after), len(before), err)
	}
	if err := errors.Join(s.add(recs[1:]), s.close()); err != nil {
		t.Fatal(err)
	}
	if todo, err := c.Todo(); err != nil || todo.HaveRuns != 1 {
		t.Errorf("todo %+v, %v", todo, err)
	}
}

// limited calls do while no file of this process may grow beyond size.
func limited(t *testing.T, size int, do func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	do()
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
}

func TestAnEmptyRecordFileIsTakenAway(t *testing.T) {
	c := campaign(t)
	s, err := openStore(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	// Another run has opened the file, but comes too late to lock it.
	path := filepath.Join(c.Dir, bench.RecordFile)
	late, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if there, err := isAt(late, path); err != nil || !there {
		t.Errorf("the file is at its place: %v, %v", there, err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if there, err := isAt(late, path); err != nil || there {
		t.Errorf("the file that is gone is at its place: %v, %v", there, err)
	}
	keep(t, c, records(t, c, c.jobs()[0]))
	if there, err := isAt(late, path); err != nil || there {
		t.Errorf("the file that is gone is the new one: %v, %v", there, err)
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
