// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

func TestAttachesWhenKubeletIsReady(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		waits := func(why string) {
			t.Helper()
			time.Sleep(time.Minute)
			w.expect(t, ReasonSettling)
			if m := w.now().Message; !strings.Contains(m, why) {
				t.Errorf("it waits: %s", m)
			}
		}
		waits("the API server has not told of this node and its pods yet: the agent's log says why")
		w.tell(kube.Snapshot{})
		waits("until kubelet is ready")
		w.tell(ready())
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
		time.Sleep(30 * time.Second)
		if n := w.count(&w.beats); n < 9 || n > 12 {
			t.Errorf("%d heartbeats in 30 s, want one each 3 s", n)
		}
		if w.count(&w.attaches) != 1 || w.engine != kube.EngineAttached {
			t.Errorf("attached %v, label %s", w.attaches, w.engine)
		}
	})
}

func TestAdoptsAtOnce(t *testing.T) {
	set := func(w *world) { w.state = left }
	play(t, asIs, set, func(t *testing.T, a *Agent, w *world) {
		time.Sleep(300 * time.Millisecond)
		w.expect(t, ReasonAttached)
		if len(w.marks) != 1 {
			t.Errorf("the node said %v", w.marks)
		}
		if n := w.plans(); n != 0 {
			t.Errorf("%d plans before the pods were known", n)
		}
	})
}

// TestAdoptedPlanIsExplained: a restart that changes nothing for the kernel does not
// forget which critical pods have no fence, and why, nor where pods are.
func TestAdoptedPlanIsExplained(t *testing.T) {
	set := func(w *world) {
		w.state = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name, Generation: 1}
		w.applied = []policy.Plan{{Groups: []policy.Group{{ID: 1, Tier: 2, EachChild: true}, {ID: 101}}}}
		w.place(1)
	}
	play(t, asIs, set, func(t *testing.T, a *Agent, w *world) {
		critical := pod(1)
		critical.Tier = 0
		w.tell(ready(critical))
		time.Sleep(time.Second)
		const name = "temper_critical_not_fenced "
		if got := scraped(a, name); got != name+"1" || w.plans() != 1 {
			t.Errorf("%q after %d plans", got, w.plans())
		}
		critical.MilliCPU = 64_000
		w.tell(ready(critical))
		time.Sleep(time.Second)
		synctest.Wait()
		last := a.view.Load().Plan.Groups[1]
		if last.Cgroup != "/kubepods/pod1" || !strings.Contains(last.NotFenced, "64 CPUs") || w.plans() != 1 {
			t.Errorf("%+v after %d plans", last, w.plans())
		}
	})
}

func TestSafeMode(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
		s := ready()
		s.Node.SafeMode = true
		w.tell(s)
		w.expect(t, ReasonSafeMode)
		if w.state.Attached || w.engine != kube.EngineSafe {
			t.Errorf("state %+v, label %s", w.state, w.engine)
		}
		const annotation = "safe mode is on, by the node's annotation temper.dev/safe-mode"
		if m := w.now().Message; m != annotation {
			t.Errorf("the condition says %q", m)
		}
		if m := w.lastEvent(kube.EventSafeModeOn); m != annotation+": the agent lets go of this node" {
			t.Errorf("the Event says %q", m)
		}
		w.tell(ready())
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)

		file := SafeModeFile(a.Config.RunDir)
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.expect(t, ReasonSafeMode)
		if m := w.now().Message; m != "safe mode is on, by the file "+file {
			t.Errorf("the condition says %q", m)
		}
		w.tell(s)
		if m := w.now().Message; m != annotation+" and the file "+file {
			t.Errorf("the condition says %q", m)
		}
		w.tell(ready())
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
	})
}

// TestDetachThatFails is tried again, and the node says that and nothing else.
func TestDetachThatFails(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		w.do(func() { w.stuck = errors.New("remove pinned link: read-only file system") })
		s := ready()
		s.Node.SafeMode = true
		w.tell(s)
		time.Sleep(time.Minute)
		w.expect(t, ReasonSafeMode)
		if m := w.now().Message; !strings.HasSuffix(m, "; not detached yet: remove pinned link: read-only file system") {
			t.Errorf("the condition says %q", m)
		}
		w.do(func() { w.stuck = nil })
		time.Sleep(time.Second)
		if m := w.now().Message; strings.Contains(m, "yet") {
			t.Errorf("afterwards the condition says %q", m)
		}
		if got := w.told(); !slices.Equal(got, []string{kube.EventAttached, kube.EventSafeModeOn, kube.EventDetached}) {
			t.Errorf("Events %v", got[:min(len(got), 9)])
		}
	})
}

func TestForeignScheduler(t *testing.T) {
	set := func(w *world) { w.state = sched.State{Kernel: "enabled", Ops: "lavd"} }
	play(t, asIs, set, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Minute)
		w.expect(t, string(sched.ForeignScheduler))
		if n := w.count(&w.attaches); n > 0 {
			t.Fatal("it was replaced")
		}
		w.do(func() { w.state = sched.State{Kernel: "disabled"} })
		time.Sleep(5 * time.Second)
		w.expect(t, ReasonAttached)
		if got := w.told(); !slices.Equal(got, []string{kube.EventForeignScheduler, kube.EventAttached}) {
			t.Errorf("Events %v", got)
		}
	})
}

func TestUnfitNodeIsReady(t *testing.T) {
	for _, mode := range []config.Mode{config.Observe, config.Enforce} {
		t.Run(string(mode), func(t *testing.T) {
			set := func(w *world) {
				w.checks = []sched.Check{{Name: "sched_ext", Reason: sched.NoSchedExt, Detail: "6.12"}}
			}
			play(t, func(c *Config) { c.Mode = mode }, set, func(t *testing.T, a *Agent, w *world) {
				w.tell(ready(pod(1)))
				time.Sleep(time.Second)
				w.expect(t, string(sched.NoSchedExt))
				for _, path := range []string{"/readyz", "/healthz", "/metrics", "/status"} {
					r := httptest.NewRecorder()
					a.Handler().ServeHTTP(r, httptest.NewRequest("GET", path, nil))
					if r.Code != 200 {
						t.Errorf("%s: %d %s", path, r.Code, r.Body)
					}
					if said := `mode="` + string(mode) + `",reason="NoSchedExt"`; path == "/metrics" && !strings.Contains(r.Body.String(), said) {
						t.Errorf("%s lacks %s, by which alerts tell what is wanted", path, said)
					}
				}
				w.do(func() { w.checks = nil })
				time.Sleep(31 * time.Second)
				want := ReasonAttached
				if mode == config.Observe {
					want = ReasonObserving
				}
				w.expect(t, want)
				if got := w.told()[0]; got != kube.EventKernelUnsupported {
					t.Errorf("first Event %s", got)
				}
			})
		})
	}
}

// TestWhatForbidsAnAttach is what the node says where nothing is wrong with its
// kernel: a reason that fits, which is no eject, and one Event.
func TestWhatForbidsAnAttach(t *testing.T) {
	check := func(r sched.Reason) func(*world) {
		return func(w *world) { w.checks = []sched.Check{{Name: "node", Reason: r, Detail: "not here"}} }
	}
	refuse := func(err error) func(*world) { return func(w *world) { w.refuses = err } }
	for name, c := range map[string]struct {
		set  func(*world)
		want sched.Reason
	}{
		"no bpffs":         {check(sched.NoBPFFS), sched.NoBPFFS},
		"no capability":    {check(sched.MissingCapability), sched.MissingCapability},
		"seccomp":          {refuse(&sched.Error{Reason: sched.Denied, Err: syscall.EPERM, Fix: "see the profile"}), sched.Denied},
		"nobody knows why": {refuse(errors.New("pin link: no space left on device")), sched.AttachFailed},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, asIs, c.set, func(t *testing.T, a *Agent, w *world) {
				w.tell(ready())
				time.Sleep(5 * time.Minute)
				w.expect(t, string(c.want))
				if got := w.told(); !slices.Equal(got, []string{kube.EventCannotAttach}) {
					t.Errorf("Events %v", got)
				}
				if m := w.events[0].Message; !strings.HasPrefix(m, string(c.want)+": ") || !w.events[0].Warning {
					t.Errorf("the Event says %q", m)
				}
				if n := a.view.Load().Ejects; n != 0 {
					t.Errorf("%d ejects of what was never attached", n)
				}
			})
		})
	}
}

func TestObserveTakesOffWhatEnforceLeft(t *testing.T) {
	set := func(w *world) { w.state = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name} }
	play(t, func(c *Config) { c.Mode = config.Observe }, set, func(t *testing.T, a *Agent, w *world) {
		time.Sleep(time.Second)
		w.expect(t, ReasonObserving)
		if w.count(&w.detaches) != 1 || w.count(&w.attaches) != 0 {
			t.Errorf("detached %v, attached %v", w.detaches, w.attaches)
		}
	})
}

// TestRunIsLeftAlone: a temper run keeps the node that it holds. What is left of
// one that was killed goes.
func TestRunIsLeftAlone(t *testing.T) {
	for mode, reason := range map[config.Mode]string{config.Observe: string(sched.ForeignScheduler), config.Enforce: ReasonSafeMode} {
		t.Run(string(mode), func(t *testing.T) {
			play(t, func(c *Config) { c.Mode = mode }, healthy, func(t *testing.T, a *Agent, w *world) {
				s := ready()
				w.tell(s)
				time.Sleep(time.Second)
				if mode == config.Enforce {
					s.Node.SafeMode = true
					w.tell(s)
				}
				free := w.now()
				off := w.count(&w.detaches)
				run := w.run(t, a.Config.RunDir)
				time.Sleep(time.Minute)
				w.expect(t, reason)
				if n := w.count(&w.detaches); n != off || !w.state.Attached || w.ownProbe {
					t.Errorf("%d detaches before and %d after, %+v, measured beside it: %v", off, n, w.state, w.ownProbe)
				}
				if m := w.now().Message; !strings.Contains(m, fmt.Sprintf("process %d, temper run", os.Getpid())) {
					t.Errorf("the condition does not name it: %s", m)
				}
				run.Release()
				time.Sleep(5 * time.Second)
				if w.count(&w.detaches) != off+1 || w.state.Attached || w.now() != free {
					t.Errorf("after its death %+v, %+v; want %+v", w.state, w.now(), free)
				}
				w.run(t, a.Config.RunDir).Release() // the next one may
			})
		})
	}
}

// TestUnfitAgentLetsGo: where the agent cannot attach, a temper run may try.
func TestUnfitAgentLetsGo(t *testing.T) {
	set := func(w *world) { w.checks = []sched.Check{{Name: "object", Reason: sched.VerifierRejected}} }
	play(t, asIs, set, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Minute)
		w.expect(t, string(sched.VerifierRejected))
		w.run(t, a.Config.RunDir).Release()
	})
}

// TestBusyNodeIsSaidOnce: an agent that enforces waits for a temper run to end,
// and says so once.
func TestBusyNodeIsSaidOnce(t *testing.T) {
	for _, attached := range []bool{true, false} {
		t.Run(fmt.Sprintf("attached %v", attached), func(t *testing.T) {
			var run *Lock
			play(t, func(c *Config) { run, _ = HoldNode(c.RunDir, AsRun) }, func(w *world) {
				if attached {
					w.state = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name}
				}
			}, func(t *testing.T, a *Agent, w *world) {
				w.tell(ready())
				time.Sleep(time.Minute)
				w.expect(t, string(sched.ForeignScheduler))
				w.do(func() { w.state = sched.State{Kernel: "disabled"} })
				run.Release()
				time.Sleep(5 * time.Second)
				w.expect(t, ReasonAttached)
				if got := w.told(); !slices.Equal(got, []string{kube.EventForeignScheduler, kube.EventAttached}) {
					t.Errorf("Events %v", got)
				}
			})
		})
	}
}

func TestOwnProbeHasPinsOfItsOwn(t *testing.T) {
	if ownProbeDir(sched.DefaultPinDir) == sched.DefaultProbeDir {
		t.Error("it replaces the pins of the probe that a temper run measures by")
	}
}

// TestWatchThatCannotStart: why is logged once, and so is another reason. One that
// ran for long is started again soon, and its end is news.
func TestWatchThatCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		runs          time.Duration
		tries, logged int // in an hour
	}{
		"never": {0, 124, 2}, "for a minute": {time.Minute, 60, 59},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				a := &Agent{Log: slog.New(slog.NewTextHandler(&log, nil))}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				began, tries := time.Now(), 0
				a.follow(ctx, "cgroups", func() error {
					tries++
					time.Sleep(c.runs)
					return fmt.Errorf("kubelet has made cgroups: %v", time.Since(began) > 30*time.Minute)
				})
				if n := strings.Count(log.String(), "level=WARN"); n != c.logged || tries != c.tries {
					t.Errorf("%d tries, want %d; %d logged, want %d:\n%s", tries, c.tries, n, c.logged, log.String())
				}
			})
		})
	}
}

func TestRefusedLimit(t *testing.T) {
	set := func(w *world) { w.support.Told = false }
	play(t, func(c *Config) { c.CPUMax = policy.CPUMaxRefuse }, set, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
		w.do(func() {
			w.limits = []policy.Limit{{Cgroup: "/kubepods/pod1", ID: 7, QuotaUs: 1000, PeriodUs: 100_000}}
		})
		time.Sleep(1500 * time.Millisecond)
		w.expect(t, string(sched.LimitsNotHeld))
		w.do(func() { w.limits = nil })
		time.Sleep(31 * time.Second)
		w.expect(t, ReasonAttached)
	})
}

// TestObstacleTakesOffWhatIsLeft: nobody would look after it until the dead-man.
func TestObstacleTakesOffWhatIsLeft(t *testing.T) {
	set := func(w *world) {
		w.state, w.support.Told = left, false
		w.limits = []policy.Limit{{Cgroup: "/kubepods/pod1", ID: 7, QuotaUs: 1000, PeriodUs: 100_000}}
	}
	play(t, func(c *Config) { c.CPUMax = policy.CPUMaxRefuse }, set, func(t *testing.T, a *Agent, w *world) {
		time.Sleep(time.Second)
		w.expect(t, string(sched.LimitsNotHeld))
		if w.state.Attached || w.count(&w.detaches) != 1 {
			t.Errorf("%+v, detached %v", w.state, w.detaches)
		}
		if m := w.lastEvent(kube.EventDetached); !strings.HasPrefix(m, string(sched.LimitsNotHeld)+": ") {
			t.Errorf("the Event says %q", m)
		}
		w.run(t, a.Config.RunDir).Release() // it may
	})
}

// TestLimitsNotHeldAreOfTheAttach: once the scheduler is off, by safe mode or by
// an eject, no limit is without a place in it.
func TestLimitsNotHeldAreOfTheAttach(t *testing.T) {
	safe := ready()
	safe.Node.SafeMode = true
	for name, end := range map[string]func(*world){
		"safe mode": func(w *world) { w.tell(safe) },
		"eject":     func(w *world) { w.eject(sched.EjectedStall, "stall", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, asIs, func(w *world) { w.unheld = 3 }, func(t *testing.T, a *Agent, w *world) {
				count := func() uint64 { synctest.Wait(); return a.view.Load().LimitsNotHeld }
				w.tell(ready())
				time.Sleep(3 * time.Second)
				if n := count(); n != 3 {
					t.Fatalf("attached, %d are not held, want 3", n)
				}
				end(w)
				time.Sleep(time.Second)
				if n := count(); n != 0 {
					t.Errorf("off, %d are not held", n)
				}
				w.tell(ready())
				time.Sleep(5 * time.Second)
				w.expect(t, ReasonAttached)
				if n := count(); n != 3 {
					t.Errorf("attached again, %d are not held, want 3", n)
				}
			})
		})
	}
}

// TestServerAway: a server that hangs delays neither heartbeats nor plans, and
// hears the last word when it is back.
func TestServerAway(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.place(1)
		w.tell(ready(pod(1)))
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
		before := w.count(&w.beats)
		w.do(func() { w.deaf = true })
		w.tell(kube.Snapshot{Node: ready().Node, Pods: []policy.Pod{pod(1)}})
		w.eject(sched.EjectedSysRq, "sysrq", 0)
		time.Sleep(30 * time.Second)
		if n := w.count(&w.beats); n-before < 8 {
			t.Errorf("%d heartbeats in 30 s", n-before)
		}
		if last := w.lastPlan(); len(last.Groups) != 2 {
			t.Errorf("the plan is %+v", last)
		}
		w.do(func() { w.deaf = false })
		time.Sleep(11 * time.Second)
		w.expect(t, ReasonAttached)
	})
}

// TestFailedWritesAreCounted: a condition that cannot be written shows where it
// is not needed to be seen.
func TestFailedWritesAreCounted(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		const name = "temper_node_writes_failed_total "
		if got := scraped(a, name); got != name+"0" {
			t.Errorf("while all is well: %q", got)
		}
		w.do(func() { w.deaf = true })
		time.Sleep(time.Minute)
		if got := scraped(a, name); got != name+"2" { // each try hangs for 20 s, and the next comes within 10
			t.Errorf("after a minute without an answer: %q", got)
		}
	})
}

// scraped is the line of the metrics that begins so.
func scraped(a *Agent, begin string) string { return scrapedOf(a.Handler(), begin) }

func scrapedOf(h http.Handler, begin string) string {
	synctest.Wait()
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(r.Body.String()) {
		if strings.HasPrefix(line, begin) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// TestPodStorm: 500 pods a second come one by one; each is in force within 10 ms.
func TestPodStorm(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		plans := w.plans()
		var pods []policy.Pod
		for n := range 500 {
			pods = append(pods, pod(n))
			w.place(n)
			w.tell(ready(pods...))
			w.changed()
			time.Sleep(2 * time.Millisecond)
			if n%50 == 0 {
				time.Sleep(8 * time.Millisecond)
				synctest.Wait()
				if last := w.lastPlan(); len(last.Groups) != n+2 {
					t.Fatalf("10 ms after pod %d the plan has %d groups", n, len(last.Groups))
				}
			}
		}
		if n := w.plans() - plans; n > 400 {
			t.Errorf("%d plans for a second of pods: they are not put together", n)
		}
	})
}

// TestCPUsGo: fences leave CPUs that went, also where the cgroups could not be
// read when that was seen.
func TestCPUsGo(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.place(1)
		critical := pod(1)
		critical.Tier, critical.MilliCPU = 0, 1000
		w.tell(ready(critical))
		time.Sleep(time.Second)
		fence := func() []int {
			synctest.Wait()
			groups := w.lastPlan().Groups
			return groups[len(groups)-1].Fence
		}
		if got := fence(); !slices.Equal(got, []int{3}) {
			t.Fatalf("at first the fence is %v", got)
		}
		w.do(func() { w.cpus, w.blind = 2, true })
		time.Sleep(3 * time.Second)
		w.do(func() { w.blind = false })
		time.Sleep(2 * time.Second)
		if got := fence(); !slices.Equal(got, []int{1}) {
			t.Errorf("of two CPUs the fence is %v", got)
		}
	})
}

// TestReusedID: a cgroup made again has another id, and a reused id
// belongs to who has it now.
func TestReusedID(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		w.place(1)
		critical := pod(1)
		critical.Tier = 0
		w.tell(ready(critical, pod(2)))
		time.Sleep(time.Second)
		w.do(func() {
			w.places["pod2"] = w.places["pod1"] // the number, of a new directory
			delete(w.places, "pod1")
		})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		last := w.lastPlan()
		at := slices.IndexFunc(last.Groups, func(g policy.Group) bool { return g.ID == 101 })
		if at < 0 || last.Groups[at].Tier != 3 {
			t.Errorf("the plan is %+v", last)
		}
	})
}
