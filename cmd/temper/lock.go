// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/temper-sched/temper/internal/agent"
)

// holdNode makes this process the one that keeps the scheduler alive.
func holdNode(dir string) (*agent.Lock, error) {
	l, err := agent.HoldNode(dir, agent.AsRun)
	if busy, ok := errors.AsType[*agent.BusyError](err); ok {
		return nil, &failure{
			code: exitBusy,
			err:  fmt.Errorf("hold node: another temper run, or the node agent, does: process %s", busy.Owner),
			fix:  "temper apply -f plan.yaml changes the plan of a run, temper stop ends it; temper safe-mode on takes the node from the agent",
		}
	}
	return l, err
}
