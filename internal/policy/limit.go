// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// CPUMax is what a node does about CPU limits.
type CPUMax uint8

// The node policies for cpu.max.
const (
	CPUMaxEnforce CPUMax = iota // hold what can be held, and say what cannot
	CPUMaxRefuse                // do not attach while a limit could not be held
)

var cpuMaxNames = [...]string{"enforce", "refuse"}

// String returns the policy's name as plans spell it.
func (c CPUMax) String() string {
	if int(c) < len(cpuMaxNames) {
		return cpuMaxNames[c]
	}
	return fmt.Sprintf("cpuMax(%d)", uint8(c))
}

// ParseCPUMax returns the policy for cpu.max called name.
func ParseCPUMax(name string) (CPUMax, error) {
	for i, n := range cpuMaxNames {
		if n == name {
			return CPUMax(i), nil
		}
	}
	return 0, fmt.Errorf("unknown policy for cpu.max %q: one of enforce, refuse", name)
}

// MarshalText makes policies appear by name in JSON and YAML.
func (c CPUMax) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *CPUMax) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCPUMax(string(text))
	return err
}

// Limit is the CPU limit of a cgroup, as cpu.max and cpu.max.burst state it.
type Limit struct {
	Cgroup   string // the path below the cgroup mount
	ID       uint64
	QuotaUs  uint64 // CPU time for each period; 0: none
	PeriodUs uint64
	BurstUs  uint64 // may be saved up beyond a period's
}

// LimitSupport is what limits can be held on a node.
type LimitSupport struct {
	Told  bool // by the kernel, of each limit at once; else somebody must read the files
	Most  int  // limits at a time
	Depth int  // limits above one another
}

// LimitProblem is why a limit could not be held as it stands, and the way out.
type LimitProblem struct{ Cause, Fix string }

// namedAtMost is how many cgroups a message lists.
const namedAtMost = 3

// CheckLimits returns why not every one of these limits can be held, nil if all can.
func CheckLimits(limits []Limit, can LimitSupport) *LimitProblem {
	const enforce = "cpuMax: enforce in the plan"
	switch deep := tooDeep(limits, can.Depth); {
	case len(limits) == 0:
		return nil
	case !can.Told:
		return &LimitProblem{
			Cause: "this kernel tells no scheduler of CPU limits, and there are " + named(limits),
			Fix:   "boot a kernel 6.17 or newer; or " + enforce + ": temper run then reads them once a second",
		}
	case len(limits) > can.Most:
		return &LimitProblem{
			Cause: fmt.Sprintf("%d cgroups have a CPU limit, %d can be held", len(limits), can.Most),
			Fix:   "lift limits; or " + enforce + ": those that came last are not held then",
		}
	case len(deep) > 0:
		return &LimitProblem{
			Cause: fmt.Sprintf("more than %d CPU limits above one another hold for no thread: %s", can.Depth, named(deep)),
			Fix:   "lift one of those above; or " + enforce + ": the outermost do not hold then",
		}
	}
	return nil
}

// tooDeep returns the limits that are below so many others that not all count.
func tooDeep(limits []Limit, depth int) []Limit {
	limited := make(map[string]bool, len(limits))
	for _, l := range limits {
		limited[l.Cgroup] = true
	}
	var deep []Limit
	for _, l := range limits {
		n := 0
		for path := l.Cgroup; path != ""; path = path[:max(strings.LastIndexByte(path, '/'), 0)] {
			if limited[path] {
				n++
			}
		}
		if n > depth {
			deep = append(deep, l)
		}
	}
	return deep
}

func named(limits []Limit) string {
	var names []string
	for _, l := range limits[:min(len(limits), namedAtMost)] {
		names = append(names, l.Cgroup)
	}
	text := strings.Join(names, ", ")
	if more := len(limits) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// LimitChanges returns what to tell the kernel side, which knows known by the
// cgroups' ids, of the limits there are now: new and changed ones, and with a
// quota of 0 those that were lifted or whose cgroup is gone. Parents come first.
func LimitChanges(known map[uint64]Limit, now []Limit) []Limit {
	var changes []Limit
	there := make(map[uint64]bool, len(now))
	for _, l := range now {
		there[l.ID] = true
		if known[l.ID] != l {
			changes = append(changes, l)
		}
	}
	for id, l := range known {
		if !there[id] {
			l.QuotaUs, l.BurstUs = 0, 0
			changes = append(changes, l)
		}
	}
	slices.SortFunc(changes, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.ID, b.ID))
	})
	return changes
}
