// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

func sysRq(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("S"), 0); err != nil {
		t.Fatal(err)
	}
}

// ejected presses SysRq-S and waits until the node says so, with that reason.
func (b *bed) ejected(reason string) (noticed time.Duration) {
	b.t.Helper()
	sysRq(b.t)
	eventually(b.t, settleWithin, "SysRq-S detaches", func() bool { return kernelState(b.t) == "disabled" })
	return eventually(b.t, slack*noticeWithin, "the node says "+reason, func() bool { return b.api.Condition()["reason"] == reason })
}

// annotate sets the node's safe mode.
func (b *bed) annotate(safe string) {
	b.t.Helper()
	if err := b.api.Edit(kubetest.NodePath, func(o kubetest.Object) {
		kubetest.Inner(o, "metadata", "annotations")[kube.SafeModeAnnotation] = safe
	}); err != nil {
		b.t.Fatal(err)
	}
}

// TestGuestEject ejects the scheduler: it comes back after a back-off, but not
// for the fifth time within an hour.
func TestGuestEject(t *testing.T) {
	b := newBed(t, enforce)
	b.populate()
	began := time.Now()
	noticed := b.ejected(string(sched.EjectedSysRq))
	t.Logf("the node says so %v after the eject", noticed)
	eventually(t, settleWithin, "an Event says so", func() bool {
		said := b.api.Said(kube.EventEjected)
		return len(said) == 1 && strings.Contains(said[0].Message, string(sched.EjectedSysRq))
	})
	b.attached()
	if back := time.Since(began); back < time.Second {
		t.Errorf("attached again after %v: no back-off", back)
	}

	// Four ejects in the record stand for the time that their back-offs take.
	b.agents[0].end()
	b.rememberEjects(4)
	second := b.start()
	second.adopts()
	eventually(t, settleWithin, "four ejects are known", func() bool { return b.report().Ejects == 4 })
	sysRq(t)
	latched := func() bool { return b.says("False", agent.ReasonEjectLatched, "safe") }
	eventually(t, settleWithin, "the fifth eject latches", latched)
	eventually(t, settleWithin, "an Event says so", func() bool { return len(b.api.Said(kube.EventEjectLatched)) == 1 })
	second.kill()
	b.start()
	eventually(t, settleWithin, "the latch outlives the agent", func() bool { return b.report().Reason == agent.ReasonEjectLatched })
	if kernelState(t) != "disabled" || !latched() {
		t.Errorf("latched, and the kernel is %s: %v", kernelState(t), b.api.Condition())
	}
	b.annotate("true")
	eventually(t, settleWithin, "safe mode is on", func() bool { return b.says("False", agent.ReasonSafeMode, "safe") })
	b.annotate("false")
	b.attached()
}

// rememberEjects makes the record of ejects hold that many of its first.
func (b *bed) rememberEjects(n int) {
	b.t.Helper()
	file := filepath.Join(b.runDir, "ejects.json")
	text, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(text, &record); err != nil {
		b.t.Fatal(err)
	}
	times, _ := record["ejects_ns"].([]any)
	if len(times) != 1 {
		b.t.Fatalf("the record of one eject: %s", text)
	}
	for len(times) < n {
		times = append(times, times[0])
	}
	record["ejects_ns"] = times
	if text, err = json.Marshal(record); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestGuestSafeMode switches it on and off by both ways, and ends with nothing
// of Temper left on the node.
func TestGuestSafeMode(t *testing.T) {
	b := newBed(t, enforce)
	b.pod(kubetest.Pod{Name: "database", Priority: 1_000_000, MilliCPU: 1000})
	b.pod(kubetest.Pod{Name: "job", QoS: "BestEffort"})
	untouched := snapshot(b)
	b.start()
	b.attached()
	isSafe := func() bool {
		return kernelState(t) == "disabled" && b.says("False", agent.ReasonSafeMode, "safe")
	}

	b.annotate("true")
	t.Logf("safe %v after the annotation", eventually(t, settleWithin, "the annotation makes the node safe", isSafe))
	b.noPins()
	eventually(t, settleWithin, "an Event says so", func() bool { return len(b.api.Said(kube.EventSafeModeOn)) == 1 })
	b.annotate("false")
	b.attached()
	eventually(t, settleWithin, "an Event says so", func() bool { return len(b.api.Said(kube.EventSafeModeOff)) == 1 })

	file := agent.SafeModeFile(b.runDir)
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("safe %v after the file", eventually(t, settleWithin, "the file makes the node safe", isSafe))
	b.noPins()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.attached()

	// As an uninstall does: safe mode, then the agent's end.
	b.annotate("true")
	eventually(t, settleWithin, "safe mode is on", isSafe)
	b.agents[0].end()
	b.noPins()
	if state := b.state(); state.Ops != "" {
		t.Errorf("scheduler %q is left", state.Ops)
	}
	if now := snapshot(b); !reflect.DeepEqual(untouched, now) {
		for file, text := range untouched {
			if now[file] != text {
				t.Errorf("%s was %q and is %q", file, text, now[file])
			}
		}
	}
}

// TestGuestSweep: safe mode also takes off what agents left that were killed in the middle
// of something.
func TestGuestSweep(t *testing.T) {
	b := newBed(t, enforce)
	b.start()
	b.attached()
	eventually(t, settleWithin, "it measures", func() bool { _, err := os.Stat(sched.DefaultProbeDir); return err == nil })
	b.killAgents()
	if err := os.Remove(filepath.Join(pinDir, "link")); err != nil { // what goes first
		t.Fatal(err)
	}
	eventually(t, settleWithin, "the scheduler is gone", func() bool { return kernelState(t) == "disabled" })
	for _, dir := range allPins() {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	b.annotate("true")
	b.start()
	eventually(t, settleWithin, "the node is safe", func() bool { return b.says("False", agent.ReasonSafeMode, "safe") })
	b.noPins()
}

// TestGuestAPIAway takes the API server away and brings it back.
func TestGuestAPIAway(t *testing.T) {
	b := newBed(t, enforce)
	plan := b.populate()
	before := b.state()
	gone := b.pods[1]
	b.api.Stop()
	eventually(t, settleWithin, "the agent knows", func() bool { r := b.report(); return !r.Connected && r.Reason == agent.ReasonAttached })
	if got := metricValue("temper_api_connected"); got != "0" {
		t.Errorf("temper_api_connected is %q", got)
	}
	// The API server hears of a pod while nobody hears of it, and forgets one.
	fresh := b.pod(kubetest.Pod{Name: "fresh", Priority: 1_000_000, MilliCPU: 1000})
	b.api.Drop("pods/" + gone.UID)
	eventually(t, settleWithin, "the agent has looked again", func() bool { return b.report().State.HeartbeatAge < 3*time.Second })
	if after := b.plan(); !reflect.DeepEqual(plan, after) {
		t.Errorf("the plan was %+v and is %+v", plan, after)
	}
	if g := b.plan()[id(kubepods+"/burstable")]; g.Tier != tier.Standard || !g.EachChild {
		t.Errorf("a new pod gets its tier from %+v", g)
	}
	file := agent.SafeModeFile(b.runDir)
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleWithin, "safe mode works by file", func() bool { return kernelState(t) == "disabled" && b.report().Engine == "safe" })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, attachWithin, "attaches without the API server", func() bool { return b.state().Attached })

	startAPI(t, b.api)
	t.Logf("a pod from meanwhile is effective %v after the API server is back", eventually(t, settleWithin, "a pod from meanwhile is critical", func() bool { return fresh.in(tier.Critical) }))
	eventually(t, settleWithin, "a pod that went meanwhile is forgotten", func() bool { _, ok := gone.group(); return !ok })
	if after := b.attached(); after.EnableSeq != before.EnableSeq+1 {
		t.Errorf("attach %d came after %d", after.EnableSeq, before.EnableSeq)
	}
}
