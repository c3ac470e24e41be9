// SPDX-License-Identifier: Apache-2.0

// Package agent keeps a Kubernetes node as its API server says: it observes,
// decides by internal/policy, applies by internal/sched, and says what holds.
package agent

import (
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/topology"
)

// Report is what the agent says about its node, as JSON at /status.
type Report struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	Mode    string `json:"mode"`   // observe | enforce
	Engine  string `json:"engine"` // attached | observe | safe, as the node's label says
	// Reason is why the engine is not attached, Attached if it is; a word of
	// the closed list. Message says it for a person.
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"` // when Reason became this
	Kernel  string    `json:"kernel"`

	Connected bool              `json:"connected"` // to the API server
	Topology  topology.Topology `json:"topology"`
	State     sched.State       `json:"state"`
	Checks    []sched.Check     `json:"checks"` // preflight, as temper doctor shows it
	Pods      []policy.Pod      `json:"pods"`
	// Plan is in force while attached; in observe mode it is what would be.
	Plan   policy.Plan        `json:"plan"`
	Limits []sched.LimitStats `json:"limits,omitempty"`
	// LimitsNotHeld are the CPU limits that found no room since the attach.
	LimitsNotHeld uint64       `json:"limits_not_held,omitempty"`
	Stats         *sched.Stats `json:"stats,omitempty"` // nil while nothing is measured
	Ejects        int          `json:"ejects"`          // in the last hour
}
