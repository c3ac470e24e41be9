// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// The dead-man's range: below the shortest a busy node could miss a few
// heartbeats by chance, above the longest a forgotten plan would rule for hours.
const (
	ShortestDeadMan = 2 * time.Second
	DefaultDeadMan  = 30 * time.Second
	LongestDeadMan  = 10 * time.Minute
)

// longestSettle is how long a node may run without its scheduler after a boot.
const longestSettle = 10 * time.Minute

// systemPriority is where Kubernetes' own priority classes begin.
const systemPriority = 2_000_000_000

// Mode is what the agent does with what it decides.
type Mode string

// The modes.
const (
	Observe Mode = "observe" // classifies and measures
	Enforce Mode = "enforce" // attaches the scheduler
)

// Agent is the node agent's configuration.
type Agent struct {
	Mode     Mode            `json:"mode"`
	Tiers    tier.Thresholds `json:"tiers"`
	Lend     policy.Lend     `json:"lend"`
	CPUMax   policy.CPUMax   `json:"cpu_max"`
	Reserved []int           `json:"reserved_cpus"` // in no fence
	DeadMan  time.Duration   `json:"dead_man_ns"`
	Settle   time.Duration   `json:"settle_ns"` // quiet time after the node's start
}

// DefaultAgent is the configuration that an empty file means.
func DefaultAgent() Agent {
	return Agent{
		Mode:    Observe,
		Tiers:   tier.Thresholds{Critical: 1_000_000, Background: 0},
		DeadMan: DefaultDeadMan,
		Settle:  30 * time.Second,
	}
}

// agentFields are the file's fields, in the order of the documentation.
var agentFields = []string{"mode", "critical", "background", "lend", "cpuMax", "reservedCPUs", "deadMan", "settle"}

// ParseAgent returns the configuration that the file called name holds in data.
// The error joins an *Error for everything wrong with the file, in the order of
// its lines.
func ParseAgent(name string, data []byte) (Agent, error) {
	d := decoder{file: name, what: "configuration"}
	a := DefaultAgent()
	if root := d.document(data); root != nil && d.noReferences(root) {
		d.agent(root, &a)
	}
	if err := d.err(); err != nil {
		return Agent{}, err
	}
	return a, nil
}

func (d *decoder) agent(root *yaml.Node, a *Agent) {
	if root.Kind != yaml.MappingNode {
		d.add(root.Line, "a configuration is a mapping, not %s", describe(root))
		return
	}
	field := func(name string, parse func(text string) error) func(*yaml.Node) {
		return func(value *yaml.Node) {
			if text, ok := d.text(value, name); ok {
				if err := parse(text); err != nil {
					d.add(value.Line, "%s: %s", name, err)
				}
			}
		}
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		lines[root.Content[i].Value] = root.Content[i].Line
	}
	before := len(d.errs)
	d.fields(root, "configuration", map[string]func(*yaml.Node){
		"mode":         field("mode", a.setMode),
		"critical":     field("critical", func(text string) error { return parsePriority(text, 1, &a.Tiers.Critical) }),
		"background":   field("background", func(text string) error { return parsePriority(text, math.MinInt32, &a.Tiers.Background) }),
		"lend":         field("lend", func(text string) (err error) { a.Lend, err = policy.ParseLend(text); return err }),
		"cpuMax":       field("cpuMax", func(text string) (err error) { a.CPUMax, err = policy.ParseCPUMax(text); return err }),
		"reservedCPUs": field("reservedCPUs", func(text string) (err error) { a.Reserved, err = topology.ParseList(text); return err }),
		"deadMan":      field("deadMan", func(text string) error { return parseDuration(text, ShortestDeadMan, LongestDeadMan, &a.DeadMan) }),
		"settle":       field("settle", func(text string) error { return parseDuration(text, 0, longestSettle, &a.Settle) }),
	})
	if len(d.errs) == before && a.Tiers.Background > a.Tiers.Critical {
		d.add(max(lines["critical"], lines["background"]), "background is %d and critical %d: a pod could be both", a.Tiers.Background, a.Tiers.Critical)
	}
}

func (a *Agent) setMode(text string) error {
	switch a.Mode = Mode(text); a.Mode {
	case Observe, Enforce:
		return nil
	}
	return fmt.Errorf("unknown mode %q: one of %s, %s", text, Observe, Enforce)
}

// parsePriority keeps critical above 0: pods without a PriorityClass have that.
func parsePriority(text string, lowest int64, into *int32) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < lowest || n >= systemPriority {
		return fmt.Errorf("%q is no priority from %d to %d", text, lowest, systemPriority-1)
	}
	*into = int32(n)
	return nil
}

func parseDuration(text string, shortest, longest time.Duration, into *time.Duration) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no duration, as in 30s", text)
	}
	*into = d
	if d < shortest || d > longest {
		return errors.New(text + " is not between " + shortest.String() + " and " + longest.String())
	}
	return nil
}
