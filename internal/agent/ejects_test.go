// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/sched"
)

func TestEjectAndBack(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		at := w.since()
		w.eject(sched.EjectedStall, "runnable task stall: spin[42] failed to run for 10.0s", 0)
		time.Sleep(700 * time.Millisecond)
		w.expect(t, string(sched.EjectedStall))
		if m := w.now().Message; !strings.Contains(m, "spin[42]") {
			t.Errorf("the condition names no thread: %s", m)
		}
		time.Sleep(3 * time.Second)
		w.expect(t, ReasonAttached)
		if back := w.attaches[1] - at; back < 1500*time.Millisecond || back > 2500*time.Millisecond {
			t.Errorf("back after %v", back)
		}
		if got := w.told(); !slices.Equal(got, []string{kube.EventAttached, kube.EventEjected, kube.EventAttached}) {
			t.Errorf("Events %v", got)
		}
	})
}

// TestUnseenEject: an eject while no agent ran is said and counted by the next
// one, and not again by those after it.
func TestUnseenEject(t *testing.T) {
	dir := t.TempDir()
	stall := string(sched.EjectedStall)
	for _, c := range []struct {
		at     time.Duration // of the eject that the agent finds
		reason string
		events []string
	}{
		{1, stall, []string{kube.EventEjected}},
		{1, ReasonAttached, []string{kube.EventAttached}},
		{2, stall, []string{kube.EventEjected}},
		{3, stall, []string{kube.EventEjected}},
		{4, stall, []string{kube.EventEjected}},
		{5, ReasonEjectLatched, []string{kube.EventEjected, kube.EventEjectLatched}},
		{5, ReasonEjectLatched, nil},
	} {
		set := func(w *world) {
			w.state = sched.State{Kernel: "disabled", Exit: &sched.Exit{At: c.at, Reason: sched.EjectedStall}}
		}
		play(t, func(cfg *Config) { cfg.RunDir = dir }, set, func(t *testing.T, a *Agent, w *world) {
			w.tell(ready())
			time.Sleep(time.Second)
			w.expect(t, c.reason)
			if got, n := w.told(), a.view.Load().Ejects; !slices.Equal(got, c.events) || n != int(c.at) {
				t.Errorf("eject %d: Events %v, %d counted", c.at, got, n)
			}
		})
	}
}

// TestEjectBeforeItsReason: an agent that starts while the kernel has not recorded
// why it ejects waits for that.
func TestEjectBeforeItsReason(t *testing.T) {
	set := func(w *world) { w.state = sched.State{Kernel: disabling, Ops: sched.Name} }
	play(t, asIs, set, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(10 * time.Second)
		w.expect(t, ReasonSettling)
		w.eject(sched.EjectedStall, "stall", 0)
		time.Sleep(time.Second)
		w.expect(t, string(sched.EjectedStall))
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
		if got := w.told(); !slices.Equal(got, []string{kube.EventEjected, kube.EventAttached}) {
			t.Errorf("Events %v", got)
		}
	})
}

// TestLateReason: the kernel records why long after the scheduler is gone.
func TestLateReason(t *testing.T) {
	for name, delay := range map[string]time.Duration{"1.5 s": 1500 * time.Millisecond, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
				w.tell(ready())
				time.Sleep(time.Second)
				go w.eject(sched.AgentStale, "no heartbeat", delay)
				time.Sleep(time.Second)
				if c := w.now(); c.Ready || !strings.Contains(c.Message, "not recorded why yet") {
					t.Errorf("after a second: %+v", c)
				}
				time.Sleep(5 * time.Second)
				w.expect(t, ReasonAttached)
				var last kube.Event
				for _, e := range w.events {
					if e.Reason == kube.EventEjected {
						last = e
					}
				}
				want := "no reason was recorded"
				if delay < time.Minute {
					want = "AgentStale: no heartbeat"
				}
				if !strings.Contains(last.Message, want) {
					t.Errorf("the last Event says %q, want %q", last.Message, want)
				}
				time.Sleep(delay)
			})
		})
	}
}

func TestFiveEjectsLatch(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		for range 5 {
			time.Sleep(time.Minute)
			w.expect(t, ReasonAttached)
			w.eject(sched.EjectedError, "bug", 0)
		}
		time.Sleep(time.Hour)
		w.expect(t, ReasonEjectLatched)
		if n := w.count(&w.attaches); n != 5 {
			t.Errorf("attached %d times, want 5", n)
		}
		for _, c := range []struct {
			build   string
			latched bool
		}{{"b1", true}, {"b2", false}} {
			r, err := loadEjects(a.Config.RunDir, c.build, 3*time.Hour)
			if err != nil || r.Latched != c.latched || r.Last == 0 {
				t.Errorf("an agent of build %s finds %+v, %v", c.build, r, err)
			}
		}
		s := ready()
		s.Node.SafeMode = true
		w.tell(s)
		w.expect(t, ReasonSafeMode)
		if names := recordIn(t, a.Config.RunDir); len(names) > 0 {
			t.Errorf("safe mode leaves %v", names)
		}
		w.tell(ready())
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
	})
}

// recordIn are the files of the record of ejects.
func recordIn(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(ejectFile(dir) + "*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestSafeModeForgetsEjects: what an agent before left in the record, of any build, does not
// outlive safe mode: it would latch what is installed later. It stays while a
// temper run has the node, which is not off.
func TestSafeModeForgetsEjects(t *testing.T) {
	for name, c := range map[string]struct {
		state sched.State
		run   bool // holds the node
		left  int
	}{
		"nothing is attached":   {state: sched.State{Kernel: "disabled"}},
		"what another one left": {state: sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name}},
		"an eject nobody saw":   {state: sched.State{Kernel: "disabled", Exit: &sched.Exit{At: time.Second, Reason: sched.EjectedStall}}},
		"a temper run has it":   {state: sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name}, run: true, left: 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			old := ejectRecord{Build: "another", Latched: true, Ejects: []time.Duration{time.Second}}
			if err := old.save(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(ejectFile(dir)+".new", nil, 0o644); err != nil { // of one that died
				t.Fatal(err)
			}
			if c.run {
				lock, err := HoldNode(dir, AsRun)
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Release()
			}
			set := func(w *world) { w.state = c.state }
			play(t, func(cfg *Config) { cfg.RunDir = dir }, set, func(t *testing.T, a *Agent, w *world) {
				s := ready()
				s.Node.SafeMode = true
				w.tell(s)
				time.Sleep(10 * time.Second)
				w.expect(t, ReasonSafeMode)
				if names := recordIn(t, dir); len(names) != c.left {
					t.Errorf("left is %v", names)
				}
			})
		})
	}
}
