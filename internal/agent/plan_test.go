// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
