// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

func TestEndOf(t *testing.T) {
	stale := &sched.Exit{Reason: sched.AgentStale, Message: "no heartbeat"}
	for name, c := range map[string]struct {
		state sched.State
		gone  time.Duration
		want  sched.Reason
		final bool
	}{
		"recorded":                    {sched.State{Kernel: "disabled", Exit: stale}, time.Second, sched.AgentStale, true},
		"just gone":                   {sched.State{Kernel: "disabled"}, time.Second, sched.EjectedError, false},
		"a starved kernel is at it":   {sched.State{Kernel: "disabling", Ops: sched.Name}, time.Minute, sched.EjectedError, false},
		"nothing is to be learned":    {sched.State{Kernel: "disabled"}, ReasonWithin, sched.EjectedError, true},
		"another scheduler is loaded": {sched.State{Kernel: "enabled", Ops: "lavd"}, time.Second, sched.ForeignScheduler, true},
	} {
		t.Run(name, func(t *testing.T) {
			end, final := EndOf(c.state, c.gone)
			if end.Reason != c.want || final != c.final {
				t.Errorf("%v, final %v", end, final)
			}
		})
	}
}
