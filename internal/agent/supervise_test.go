// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

var (
	free    = sched.State{Kernel: "disabled"}
	ours    = sched.State{Kernel: "enabled", Ops: sched.Name, Attached: true}
	foreign = sched.State{Kernel: "enabled", Ops: "lavd"}
	remains = sched.State{Kernel: "disabled", Exit: &sched.Exit{Reason: sched.EjectedError}}
)

func TestStep(t *testing.T) {
	const boot = time.Hour
	noKernel := &obstacle{sched.NoSchedExt, "6.12"}
	cases := map[string]struct {
		super  supervisor
		in     sight
		do     action
		reason string
	}{
		"before kubelet is ready only checks": {supervisor{enforce: true}, sight{state: free}, check, ReasonSettling},
		"ready long after the boot":           {supervisor{enforce: true, settle: time.Minute}, sight{state: free, ready: true}, attach, ""},
		"adopts before kubelet is ready":      {supervisor{enforce: true}, sight{state: ours}, attach, ReasonSettling},
		"one thing at a time":                 {supervisor{enforce: true}, sight{state: ours, busy: true}, nothing, ReasonSettling},
		"keeps what it holds":                 {supervisor{enforce: true, held: true}, sight{state: ours, ready: true}, nothing, ReasonAttached},
		"safe mode takes off what it holds":   {supervisor{enforce: true, held: true}, sight{state: ours, safeBy: "the file"}, detach, ReasonSafeMode},
		"safe mode takes off what is pinned":  {supervisor{enforce: true}, sight{state: ours, safeBy: "the file"}, detach, ReasonSafeMode},
		"safe mode removes remains":           {supervisor{enforce: true}, sight{state: remains, safeBy: "the file"}, detach, ReasonSafeMode},
		"safe mode leaves a foreign one":      {supervisor{enforce: true}, sight{state: foreign, safeBy: "the file"}, nothing, ReasonSafeMode},
		"observe takes off what is pinned":    {supervisor{}, sight{state: ours}, detach, ReasonObserving},
		"observe only checks":                 {supervisor{}, sight{state: free, ready: true}, check, ReasonObserving},
		"a foreign one is not replaced":       {supervisor{enforce: true}, sight{state: foreign, ready: true}, nothing, string(sched.ForeignScheduler)},
		"an obstacle is not tried each tick":  {supervisor{enforce: true, obstacle: noKernel, checked: true, checkedAt: boot - time.Second}, sight{state: free, ready: true}, nothing, string(sched.NoSchedExt)},
		"an obstacle is tried again":          {supervisor{enforce: true, obstacle: noKernel, checked: true, checkedAt: boot - recheckEvery}, sight{state: free, ready: true}, attach, string(sched.NoSchedExt)},
		"latched":                             {supervisor{enforce: true, record: ejectRecord{Latched: true}}, sight{state: free, ready: true}, nothing, ReasonEjectLatched},
		"a limit is refused":                  {supervisor{enforce: true, held: true}, sight{state: ours, refused: &obstacle{sched.LimitsNotHeld, "7"}}, detach, string(sched.LimitsNotHeld)},
		"another build waits for a plan":      {supervisor{enforce: true, strange: true}, sight{state: ours, planless: noKernel}, nothing, ReasonSettling},
		"another build is replaced with one":  {supervisor{enforce: true, strange: true}, sight{state: ours}, attach, ReasonSettling},
		"nothing is attached without a plan":  {supervisor{enforce: true}, sight{state: free, ready: true, planless: noKernel}, check, string(sched.NoSchedExt)},
		"waits before it comes back":          {supervisor{enforce: true, settled: true, retryAt: boot + 1, ended: Ending{Reason: sched.EjectedStall}}, sight{state: remains, ready: true}, nothing, string(sched.EjectedStall)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.in.now = boot
			do := c.super.step(c.in)
			if do != c.do || c.super.verdict.Reason != c.reason {
				t.Errorf("action %d, %+v; want action %d, %s", do, c.super.verdict, c.do, c.reason)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	s := supervisor{enforce: true, settle: 30 * time.Second}
	for _, c := range []struct {
		now   time.Duration
		ready bool
		do    action
	}{
		{20 * time.Second, false, check},
		{40 * time.Second, true, check}, // kubelet came: quiet time begins
		{69 * time.Second, true, check},
		{70 * time.Second, true, attach},
		{80 * time.Second, false, attach}, // once quiet, always
	} {
		if do := s.step(sight{now: c.now, ready: c.ready, state: free}); do != c.do {
			t.Errorf("at %v: action %d, want %d", c.now, do, c.do)
		}
	}
}

// TestBackoff: 1.5, 3, 6, 12, 24, 48, 48 s, and 1.5 s again after ten calm minutes, less what an attach takes.
func TestBackoff(t *testing.T) {
	s := supervisor{enforce: true, settled: true}
	now := time.Hour
	lose := func(took time.Duration) time.Duration {
		s.attached(false, took)
		s.step(sight{now: now, state: ours})
		gone := sched.State{Kernel: disabling, Exit: &sched.Exit{Reason: sched.AgentStale}}
		if s.step(sight{now: now, state: gone}) == attach || s.verdict.Reason != string(sched.AgentStale) {
			t.Errorf("while the kernel is still at it, the node says %v", s.verdict)
		}
		gone.Kernel = "disabled"
		lost := now
		for s.step(sight{now: now, state: gone}) != attach {
			now += 500 * time.Millisecond
		}
		return now - lost
	}
	for i, want := range []float64{1.5, 3, 6, 12, 24, 48, 48} {
		if got := lose(0); got.Seconds() != want {
			t.Errorf("loss %d: back after %v, want %v s", i, got, want)
		}
	}
	now += 10 * time.Minute
	if got := lose(time.Second); got != 500*time.Millisecond {
		t.Errorf("after ten calm minutes, when an attach takes 1 s: begins after %v", got)
	}
	if got := lose(time.Minute); got != 0 {
		t.Errorf("when an attach takes longer than the pause: begins after %v", got)
	}
	if s.verdict.Reason != string(sched.AgentStale) {
		t.Errorf("while it attaches at once the node says %v", s.verdict)
	}
	if s.record.Latched {
		t.Error("the dead-man latched")
	}
}

// TestEjectWhileAttaching: the record is seen before it is known that the attach
// was done, and again after.
func TestEjectWhileAttaching(t *testing.T) {
	s := supervisor{enforce: true, settled: true}
	ejected := sched.State{Kernel: "disabled", Exit: &sched.Exit{At: 1, Reason: sched.EjectedStall}}
	s.step(sight{now: time.Hour, state: ejected, busy: true})
	s.attached(false, 0)
	s.step(sight{now: time.Hour, state: ejected})
	if s.held || len(s.record.Ejects) != 1 {
		t.Errorf("held %v, counted %v", s.held, s.record.Ejects)
	}
}

func FuzzParseEjects(f *testing.F) {
	f.Add([]byte(`{"build":"b","latched":true,"ejects_ns":[1]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseEjects(text)
		if err == nil {
			r.add(time.Hour, nil)
			if len(r.Ejects) == 0 {
				t.Error("an eject is not counted")
			}
		}
	})
}
