// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

// ReasonWithin is how long the exit record of a scheduler that is gone may take.
// The kernel writes it while its state is disabling, which on a starved machine
// lasts for many seconds.
const ReasonWithin = 5 * time.Second

const disabling = "disabling" // /sys/kernel/sched_ext/state

// Ending is how an attached scheduler ended.
type Ending struct {
	Reason  sched.Reason
	Message string
}

// String returns the ending as one line for people.
func (e Ending) String() string { return fmt.Sprintf("%s: %s", e.Reason, e.Message) }

// EndOf tells from the state of a node whose scheduler is gone, for so long, how
// it ended. It is final when no more can be learned.
func EndOf(state sched.State, gone time.Duration) (end Ending, final bool) {
	switch {
	case state.Exit != nil:
		return Ending{state.Exit.Reason, state.Exit.Message}, true
	case state.Ops != "" && !sched.IsOurs(state.Ops):
		return Ending{sched.ForeignScheduler, fmt.Sprintf("scheduler %q is loaded instead", state.Ops)}, true
	case state.Kernel == disabling, gone < ReasonWithin:
		return Ending{sched.EjectedError, "the scheduler is gone; the kernel has not recorded why yet"}, false
	}
	return Ending{sched.EjectedError, "no reason was recorded"}, true
}
