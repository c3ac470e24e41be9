// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

// times is how often to do what the long form of a test does more often.
func times(t *testing.T, env string, short int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// populate is a node with a pod of every tier under an agent, and its plan once
// that is in force.
func (b *bed) populate() map[uint64]policy.Group {
	b.t.Helper()
	pods := []*pod{
		b.pod(kubetest.Pod{Name: "database", Priority: 1_000_000, MilliCPU: 1000}),
		b.pod(kubetest.Pod{Name: "web", MilliCPU: 500}),
		b.pod(kubetest.Pod{Name: "job", QoS: "BestEffort"}),
	}
	b.start()
	b.attached()
	eventually(b.t, settleWithin, "the plan has every pod", func() bool { return len(b.plan()) == 3+len(pods) })
	return b.plan()
}

// busy gives every pod a thread that never sleeps.
func (b *bed) busy() {
	b.t.Helper()
	for _, p := range b.pods {
		p.spin()
	}
}

// adopts waits until an agent holds the scheduler.
func (p *process) adopts() {
	p.t.Helper()
	eventually(p.t, attachWithin, "the agent holds the scheduler", func() bool {
		return strings.Contains(p.log.String(), `"scheduler attached"`)
	})
}

// killAgents ends all agents of the test, as a crash does.
func (b *bed) killAgents() {
	for _, p := range b.agents {
		p.kill()
	}
}

// TestGuestKilled kills agents under load, some as soon as they have started.
func TestGuestKilled(t *testing.T) {
	b := newBed(t, enforce)
	plan := b.populate()
	b.busy()
	before := b.state()
	kills := times(t, "TEMPER_KILLS", 10)
	for i := range kills {
		b.killAgents()
		next := b.start()
		if i%2 == 0 {
			next.adopts()
		} else {
			time.Sleep(time.Duration(i*37%500) * time.Millisecond) // anywhere in its start
		}
		if after := b.state(); !after.Attached || after.EnableSeq != before.EnableSeq {
			t.Fatalf("after kill %d: before %+v, after %+v", i+1, before, after)
		}
		if !b.says("True", "Attached", "attached") {
			t.Fatalf("after kill %d: the node says %v", i+1, b.api.Condition())
		}
		if after := b.plan(); !reflect.DeepEqual(plan, after) {
			t.Fatalf("after kill %d: the plan was %+v and is %+v", i+1, plan, after)
		}
	}
	b.killAgents()
	b.start().adopts()
	after := b.state()
	t.Logf("%d kills: %d attaches, generation %d before and %d after", kills, after.EnableSeq-before.EnableSeq, before.Generation, after.Generation)
	if after.EnableSeq != before.EnableSeq || !b.says("True", "Attached", "attached") {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestGuestStoppedAgent stops the agent without killing it: the dead-man of the
// kernel side returns the node, and the agent says why when it goes on.
func TestGuestStoppedAgent(t *testing.T) {
	const deadMan = 2 * time.Second
	b := newBed(t, enforce+"deadMan: 2s\n")
	b.populate()
	before := b.state()
	p := b.agents[0]
	p.signal(syscall.SIGSTOP)
	stock := eventually(t, slack*deadMan, "the dead-man returns the node", func() bool { return kernelState(t) == "disabled" })
	t.Logf("with a dead-man of %v the kernel's scheduler runs %v after the stop", deadMan, stock)
	p.signal(syscall.SIGCONT)
	eventually(t, settleWithin, "the node says AgentStale", func() bool { return b.says("False", string(sched.AgentStale), "observe") })
	eventually(t, settleWithin, "an Event says AgentStale", func() bool {
		said := b.api.Said(kube.EventEjected)
		return len(said) > 0 && strings.Contains(said[len(said)-1].Message, string(sched.AgentStale))
	})
	if after := b.attached(); after.EnableSeq != before.EnableSeq+1 {
		t.Errorf("attach %d came after %d", after.EnableSeq, before.EnableSeq)
	}
	if r := b.report(); r.Ejects != 0 {
		t.Errorf("the dead-man counts as %d ejects", r.Ejects)
	}
}

// replaceWithin is promised for the time between two builds, in which neither runs.
const replaceWithin = 2 * time.Second

// TestGuestUpgrade ends agents as kubelet does and starts others.
func TestGuestUpgrade(t *testing.T) {
	b := newBed(t, enforce)
	plan := b.populate()
	b.busy()
	before := b.state()
	restarts := times(t, "TEMPER_UPGRADES", 3)
	for range restarts {
		b.agents[len(b.agents)-1].end()
		b.start().adopts()
		if after := b.state(); !after.Attached || after.EnableSeq != before.EnableSeq || !reflect.DeepEqual(plan, b.plan()) {
			t.Fatalf("before %+v, after %+v, plan %+v", before, after, b.plan())
		}
	}
	t.Logf("%d restarts without an attach", restarts)

	b.program = otherBuild(t)
	b.agents[len(b.agents)-1].end()
	window := stockWindow()
	b.start().adopts()
	stock := window()
	t.Logf("replacing another build left the node to the kernel's scheduler for %v", stock)
	if stock > 3*replaceWithin { // by the wall, on a machine that is emulated and busy
		t.Errorf("that is more than %v", 3*replaceWithin)
	}
	if after := b.state(); !after.Attached || after.EnableSeq != before.EnableSeq+1 {
		t.Errorf("before %+v, after the other build %+v", before, after)
	}
	eventually(t, settleWithin, "the plan is what it was", func() bool { return maps.EqualFunc(plan, b.plan(), sameGroup) })
	b.attached()
}

func sameGroup(a, b policy.Group) bool { return reflect.DeepEqual(a, b) }

// stockWindow begins to watch, and returns what ends that and says for how long
// no sched_ext scheduler ran.
func stockWindow() func() time.Duration {
	stop, total := make(chan struct{}), make(chan time.Duration)
	go func() {
		var sum time.Duration
		for last := time.Now(); ; {
			select {
			case <-stop:
				total <- sum
				return
			case <-time.After(time.Millisecond):
			}
			now := time.Now()
			if text, _ := os.ReadFile("/sys/kernel/sched_ext/state"); strings.TrimSpace(string(text)) != "enabled" {
				sum += now.Sub(last)
			}
			last = now
		}
	}()
	return func() time.Duration { close(stop); return <-total }
}

// TestGuestUpgradeWithoutAPI: a build that cannot know the pods does not take another's place.
// The dead-man ends the old one, and the node waits under the kernel's scheduler.
func TestGuestUpgradeWithoutAPI(t *testing.T) {
	b := newBed(t, enforce+"deadMan: 20s\n")
	plan := b.populate()
	before := b.state()
	b.api.Stop()
	b.program = otherBuild(t)
	b.agents[0].end()
	b.start()
	eventually(t, settleWithin, "the agent waits", func() bool {
		return strings.Contains(b.report().Message, "waiting to replace another build")
	})
	if after := b.plan(); !maps.EqualFunc(plan, after, sameGroup) {
		t.Errorf("while it waits the plan was %+v and is %+v", plan, after)
	}
	eventually(t, 4*settleWithin, "the dead-man ends the old one", func() bool { return kernelState(t) == "disabled" })
	eventually(t, settleWithin, "the agent says why nothing is attached", func() bool {
		r := b.report()
		return r.Reason == agent.ReasonSettling && strings.Contains(r.Message, "the API server has not told of this node")
	})
	if after := b.state(); after.EnableSeq != before.EnableSeq {
		t.Errorf("before %+v, after %+v", before, after)
	}
	startAPI(t, b.api)
	b.attached()
	eventually(t, settleWithin, "the plan is what it was", func() bool { return maps.EqualFunc(plan, b.plan(), sameGroup) })
}

// TestGuestEndDuringAttach: an agent that is asked to end while it attaches leaves no
// scheduler that has no plan.
func TestGuestEndDuringAttach(t *testing.T) {
	b := newBed(t, enforce)
	p := b.start()
	eventually(t, attachWithin, "the pins are being made", func() bool {
		_, staged := os.Stat(pinDir + "_new")
		_, pinned := os.Stat(pinDir)
		return staged == nil || pinned == nil
	})
	p.end()
	state := b.state()
	t.Logf("afterwards %+v", state)
	if state.Ops != "" && state.Generation == 0 {
		t.Error("it is attached, and has no plan")
	}
	if state.Ops == "" {
		b.noPins()
	}
}

// TestGuestRestartedContainer removes cgroups and makes them again, as restarts do.
func TestGuestRestartedContainer(t *testing.T) {
	b := newBed(t, enforce)
	critical := b.pod(kubetest.Pod{Name: "database", Priority: 1_000_000, MilliCPU: 1000})
	b.start()
	b.attached()
	seen := map[uint64]bool{}
	for i := range 20 {
		eventually(t, settleWithin, "the pod is critical", func() bool { return critical.in(tier.Critical) })
		seen[id(critical.dir)] = true
		critical.removeCgroup()
		// What comes in its place is somebody else's.
		other := b.told(kubetest.Pod{Name: "job", UID: kubetest.UID(100 + i), QoS: "BestEffort"})
		other.makeCgroup()
		eventually(t, settleWithin, "the other pod is background", func() bool { return other.in(tier.Background) })
		other.gone()
		critical.makeCgroup()
		critical.spawn("sleep", "3600")
	}
	eventually(t, settleWithin, "the pod is critical", func() bool { return critical.in(tier.Critical) })
	t.Logf("the pod's cgroup had %d ids in 21 lives", len(seen)+1)
	eventually(t, settleWithin, "the plan holds no id of a cgroup that is gone", func() bool {
		delete(seen, id(critical.dir))
		for old := range seen {
			if _, ok := b.plan()[old]; ok {
				return false
			}
		}
		return len(b.plan()) == 4
	})
}
