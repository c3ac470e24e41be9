// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

func TestGuestAttach(t *testing.T) {
	b := newBed(t, enforce)
	critical := b.pod(kubetest.Pod{Name: "database", Priority: 1_000_000, MilliCPU: 1000})
	standard := b.pod(kubetest.Pod{Name: "web", MilliCPU: 100})
	guaranteed := b.pod(kubetest.Pod{Name: "own", QoS: "Guaranteed", MilliCPU: 100})
	background := b.pod(kubetest.Pod{Name: "job", QoS: "BestEffort"})
	b.start()
	t.Logf("attached %v after the start of the agent", eventually(t, attachWithin, "attaches", func() bool { return b.state().Attached }))
	b.attached()
	for p, want := range map[*pod]tier.Tier{critical: tier.Critical, standard: tier.Standard, guaranteed: tier.Standard, background: tier.Background} {
		eventually(t, settleWithin, p.Name+" is "+want.String(), func() bool { return p.in(want) })
	}
	if g, _ := critical.group(); len(g.Fence) != 1 {
		t.Errorf("the fence of a pod that asks for one of four CPUs: %+v", g)
	}
	// What nobody has heard of yet has a tier, too.
	for dir, want := range map[string]tier.Tier{"": tier.Standard, "/burstable": tier.Standard, "/besteffort": tier.Background} {
		if g, ok := b.plan()[id(kubepods+dir)]; !ok || g.Tier != want || !g.EachChild {
			t.Errorf("the default at %s: %+v", kubepods+dir, g)
		}
	}

	late := b.pod(kubetest.Pod{Name: "late", Priority: 1_000_000, MilliCPU: 1000})
	t.Logf("a pod is effective %v after its first process", eventually(t, settleWithin, "a later pod is critical", func() bool { return late.in(tier.Critical) }))
	lowered := b.pod(kubetest.Pod{Name: "lowered", Priority: 1_000_000, Annotations: map[string]string{kube.TierAnnotation: "background"}})
	eventually(t, settleWithin, "an annotation lowers", func() bool { return lowered.in(tier.Background) })
	late.gone()
	eventually(t, settleWithin, "the plan forgets a pod", func() bool { return len(b.plan()) == 3+5 })

	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if got := metricValue("temper_scheduler_attached"); got != "1" {
		t.Errorf("temper_scheduler_attached is %q", got)
	}
	eventually(t, settleWithin, "an Event says so", func() bool { return len(b.api.Said(kube.EventAttached)) == 1 })
}

// TestGuestObserve attaches nothing, and measures.
func TestGuestObserve(t *testing.T) {
	b := newBed(t, "mode: observe\nsettle: 0s\n")
	before := b.state()
	b.pod(kubetest.Pod{Name: "database", Priority: 1_000_000, MilliCPU: 1000}).spin()
	b.start()
	eventually(t, attachWithin, "the node says that it observes", func() bool { return b.says("False", "Observing", "observe") })
	eventually(t, attachWithin, "the time of critical threads is measured", func() bool {
		seconds := metricValue(`temper_tier_cpu_seconds_total{tier="critical"}`)
		return seconds != "" && seconds != "0"
	})
	eventually(t, settleWithin, "pods are counted", func() bool { return metricValue(`temper_pods{tier="critical"}`) == "1" })
	if code, _ := get("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d", code)
	}
	after := b.state()
	if after.EnableSeq != before.EnableSeq || after.Ops != "" || kernelState(t) != "disabled" {
		t.Errorf("the scheduler before %+v, after %+v", before, after)
	}
	if _, err := os.Stat(pinDir); err == nil {
		t.Errorf("%s is there", pinDir)
	}
	if r := b.report(); r.Mode != "observe" || len(r.Pods) != 1 || len(r.Plan.Groups) != 4 || r.Stats == nil {
		t.Errorf("status = %+v", r)
	}
}

// TestRefusedKernel runs on kernels that cannot do: TEMPER_EXPECT is the reason
// that the node must name. The agent serves all the same.
func TestRefusedKernel(t *testing.T) {
	want := os.Getenv("TEMPER_EXPECT")
	if want == "" {
		t.Skip("TEMPER_EXPECT names no reason: this machine's kernel is no fixture")
	}
	b := newBed(t, enforce)
	b.pod(kubetest.Pod{Name: "database", Priority: 1_000_000, MilliCPU: 1000})
	p := b.start()
	eventually(t, attachWithin, "the node says "+want, func() bool { return b.says("False", want, "observe") })
	eventually(t, settleWithin, "the agent is ready", func() bool { code, _ := get("/readyz"); return code == http.StatusOK })
	eventually(t, settleWithin, "an Event names the reason", func() bool {
		said := b.api.Said(kube.EventKernelUnsupported)
		return len(said) == 1 && strings.Contains(said[0].Message, want)
	})
	eventually(t, settleWithin, "pods are counted", func() bool { return metricValue(`temper_pods{tier="critical"}`) == "1" })
	select {
	case <-p.ended:
		t.Error("the agent has ended")
	default:
	}
	p.end()
	b.noPins()
}

// TestGuestForeign meets another sched_ext scheduler.
func TestGuestForeign(t *testing.T) {
	b := newBed(t, enforce)
	foreign := attachForeign(t)
	before := b.state()
	b.start()
	eventually(t, attachWithin, "the node says whose scheduler runs", func() bool { return b.says("False", string(sched.ForeignScheduler), "observe") })
	eventually(t, settleWithin, "an Event names it", func() bool {
		said := b.api.Said(kube.EventForeignScheduler)
		return len(said) == 1 && strings.Contains(said[0].Message, foreignName)
	})
	if after := b.state(); !strings.HasPrefix(after.Ops, foreignName) || after.EnableSeq != before.EnableSeq || after.Kernel != "enabled" {
		t.Errorf("their scheduler before %+v, after %+v", before, after)
	}
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleWithin, "the other scheduler is gone", func() bool { return kernelState(t) == "disabled" })
	after := eventually(t, attachWithin, "attaches when the other has left", func() bool { return b.state().Attached })
	t.Logf("attached %v after the other scheduler left", after)
	if after > slack*backWithin {
		t.Errorf("attached only %v after the other scheduler left", after)
	}
	b.attached()

	// Theirs does not get in, and ours does not notice.
	held := b.state()
	if second, err := tryForeign(); err == nil {
		t.Error("another scheduler was loaded beside ours")
		second.Close()
	}
	if after := b.state(); !after.Attached || after.EnableSeq != held.EnableSeq {
		t.Errorf("ours before %+v, after %+v", held, after)
	}
}
