// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

// left is what an agent leaves attached, with its plan.
var left = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name, Generation: 1}

// TestNoneWithoutAPlan: whatever is attached has a plan, or goes.
func TestNoneWithoutAPlan(t *testing.T) {
	bare := left
	bare.Generation = 0
	for name, c := range map[string]struct {
		set    func(*world)
		blind  string // before the API server has told of the node; "": it is not asked
		known  string // when it has
		within time.Duration
	}{
		"another build waits":                 {func(w *world) { w.state, w.other = left, true }, "", ReasonAttached, time.Second},
		"adopted without one":                 {func(w *world) { w.state = bare }, string(sched.AttachFailed), ReasonAttached, time.Minute},
		"the kernel side takes none":          {func(w *world) { w.full = true }, ReasonSettling, string(sched.AttachFailed), time.Second},
		"cgroups cannot be read":              {func(w *world) { w.blind = true }, ReasonSettling, string(sched.AttachFailed), time.Second},
		"another build, cgroups are not read": {func(w *world) { w.state, w.other, w.blind = left, true, true }, "", "", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, asIs, c.set, func(t *testing.T, a *Agent, w *world) {
				time.Sleep(10 * time.Second)
				if w.expect(t, c.blind); w.plans() > 0 || w.count(&w.attaches) > 0 && w.count(&w.detaches) == 0 {
					t.Fatalf("attached %v, detached %v, %d plans of pods that nobody knows", w.attaches, w.detaches, w.plans())
				}
				w.tell(ready())
				time.Sleep(c.within)
				w.expect(t, c.known)
				if w.state.Attached && w.state.Generation == 0 {
					t.Errorf("attached without a plan: %+v", w.state)
				}
			})
		})
	}
}

// TestReplacementWaits: the annotation is heeded before another build is replaced, and
// meanwhile nothing keeps the dead-man from it.
func TestReplacementWaits(t *testing.T) {
	set := func(w *world) { w.state, w.other = left, true }
	t.Run("safe mode", func(t *testing.T) {
		play(t, asIs, set, func(t *testing.T, a *Agent, w *world) {
			time.Sleep(10 * time.Second)
			s := ready()
			s.Node.SafeMode = true
			w.tell(s)
			time.Sleep(time.Second)
			w.expect(t, ReasonSafeMode)
			if w.state.Attached || w.count(&w.attaches) > 0 {
				t.Errorf("%+v, attached %v", w.state, w.attaches)
			}
		})
	})
	t.Run("dead-man", func(t *testing.T) {
		play(t, asIs, set, func(t *testing.T, a *Agent, w *world) {
			time.Sleep(10 * time.Second)
			const waits = "waiting to replace another build that is attached: the API server has not told of this node"
			if m := a.view.Load().Message; !strings.HasPrefix(m, waits) || w.count(&w.beats) > 0 {
				t.Errorf("%q, and %d heartbeats", m, w.count(&w.beats))
			}
			w.eject(sched.AgentStale, "no heartbeat", 0)
			time.Sleep(time.Minute)
			if w.expect(t, ReasonSettling); w.count(&w.attaches) > 0 {
				t.Errorf("attached %v", w.attaches)
			}
		})
	})
}

// TestEndDuringAttach: what was attached for an agent that ends meanwhile has no plan.
func TestEndDuringAttach(t *testing.T) {
	var w *world
	play(t, asIs, func(is *world) { w = is; w.slow = 5 * time.Second }, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
	})
	if len(w.attaches) != 1 || w.state.Attached {
		t.Errorf("attached %v, and then %+v", w.attaches, w.state)
	}
}

// TestRunDirThatCannotBeWritten: no lock can be held there by anybody; plans are in force all the same.
func TestRunDirThatCannotBeWritten(t *testing.T) {
	noDir := func(c *Config) {
		file := filepath.Join(c.RunDir, "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			panic(err)
		}
		c.RunDir = filepath.Join(file, "run")
	}
	play(t, noDir, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(10 * time.Second)
		if w.expect(t, ReasonAttached); w.plans() != 1 || w.count(&w.detaches) > 0 {
			t.Errorf("%d plans, detached %v", w.plans(), w.detaches)
		}
	})
}

// TestTwoWritersMakeNoPlan: while a temper apply fills a plan the agent does not, and its own
// comes when that is done. Heartbeats go on.
func TestTwoWritersMakeNoPlan(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.place(1)
		w.tell(ready())
		time.Sleep(time.Second)
		held, err := HoldPlan(a.Config.RunDir)
		if err != nil {
			t.Fatal(err)
		}
		plans, beats := w.plans(), w.count(&w.beats)
		w.tell(ready(pod(1)))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := w.plans(); n != plans {
			t.Errorf("%d plans while another process changes it", n-plans)
		}
		if n := w.count(&w.beats); n-beats < 3 {
			t.Errorf("%d heartbeats in 10 s", n-beats)
		}
		const behind = "; not by the newest plan: another process changes the plan at this moment"
		if m := w.now().Message; !strings.HasSuffix(m, behind) {
			t.Errorf("the condition says %q", m)
		}
		held.Release()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if last := w.lastPlan(); w.plans() == plans || len(last.Groups) != 2 {
			t.Errorf("afterwards the plan is %+v", last)
		}
		if m := w.now().Message; strings.Contains(m, "plan") {
			t.Errorf("afterwards the condition says %q", m)
		}
	})
}

// TestBlindAgentSaysSo: where pods' cgroups cannot be read the plan in force stays,
// and the node says that it is old.
func TestBlindAgentSaysSo(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		expect := func(blind bool, want string) {
			t.Helper()
			w.do(func() { w.blind = blind })
			time.Sleep(behindAfter + 2*time.Second)
			w.expect(t, ReasonAttached)
			if m := w.now().Message; m != want {
				t.Errorf("blind %v: the condition says %q", blind, m)
			}
		}
		const well = "threads run by their pods' tiers"
		expect(true, well+"; not by the newest plan: look at pods' cgroups: input/output error")
		w.do(func() { w.mute = true }) // what was said is not said again
		expect(true, well+"; not by the newest plan: look at pods' cgroups: input/output error")
		w.do(func() { w.mute = false })
		expect(false, well)
	})
}

// TestRefusedPlanIsNotShown: what is shown is in force, until the next one is.
func TestRefusedPlanIsNotShown(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.place(1)
		w.tell(ready())
		time.Sleep(time.Second)
		shows := func(full bool, groups, plans int) {
			t.Helper()
			w.do(func() { w.full = full })
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if p := a.view.Load().Plan; len(p.Groups) != groups || w.plans() != plans {
				t.Errorf("after %d plans, want %d, it shows %+v", w.plans(), plans, p)
			}
		}
		shows(false, 1, 1)
		w.do(func() { w.full = true })
		w.tell(ready(pod(1)))
		shows(true, 1, 1)
		w.tell(ready()) // as it was; what a refusal left in the kernel is not known
		shows(true, 1, 1)
		shows(false, 1, 2)
		w.tell(ready(pod(1)))
		shows(false, 2, 3)
	})
}
