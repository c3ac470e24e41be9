// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

// TestSweep: safe mode removes also the pins that no state tells of, once, while nobody
// else holds the node. Remains of a probe go at the start.
func TestSweep(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		swept := func(what string, want int) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if n := w.count(&w.sweeps); n != want {
				t.Errorf("%s: swept %d times, want %d", what, n, want)
			}
		}
		s := ready()
		w.tell(s)
		swept("attached", 0)
		s.Node.SafeMode = true
		w.tell(s)
		swept("safe mode", 1)
		run := w.run(t, a.Config.RunDir)
		swept("a temper run", 1)
		w.do(func() { w.state = sched.State{Kernel: "disabled"} }) // it ends, and is at its pins
		swept("a temper run that ends", 1)
		run.Release()
		swept("it has ended", 2)
		w.run(t, a.Config.RunDir).Release() // the next one may
		if w.probes != 1 {
			t.Errorf("%d probes removed at the start", w.probes)
		}
	})
}

// TestProbeOfAnotherAgent: what another agent measures by is not removed at the start.
func TestProbeOfAnotherAgent(t *testing.T) {
	var other *Lock
	play(t, func(c *Config) { other, _ = Attend(c.RunDir) }, healthy, func(t *testing.T, a *Agent, w *world) {
		defer other.Release()
		time.Sleep(time.Second)
		if w.probes != 0 {
			t.Errorf("%d removed", w.probes)
		}
	})
}

// TestSweepWithoutAReason: a scheduler that ended without any record leaves pins, which
// this agent still has a handle on.
func TestSweepWithoutAReason(t *testing.T) {
	play(t, asIs, healthy, func(t *testing.T, a *Agent, w *world) {
		s := ready()
		w.tell(s)
		time.Sleep(time.Second)
		s.Node.SafeMode = true
		w.do(func() { w.state = sched.State{Kernel: "disabled"} })
		w.tell(s)
		time.Sleep(time.Minute)
		if n := w.count(&w.sweeps); n != 1 {
			t.Errorf("swept %d times", n)
		}
	})
}
