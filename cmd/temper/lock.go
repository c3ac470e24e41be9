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

// notTheAgents refuses a node whose agent would undo at once what is done to it.
func (n node) notTheAgents() error {
	holder, err := agent.Holder(n.runDir)
	if err != nil || holder == nil || holder.Role != agent.AsAgent {
		return err
	}
	return &failure{
		code: exitBusy,
		err:  fmt.Errorf("apply plan: the node agent, process %s, holds this node and makes its plan of the pods here", holder.Owner),
		fix:  "a pod's PriorityClass or the annotation temper.dev/tier changes its tier; temper safe-mode on takes the node from the agent, and temper run -f plan.yaml then has it",
	}
}
