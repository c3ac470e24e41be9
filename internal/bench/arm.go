// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Arm is how the node is run: what is compared. Its name says all of it: a base
// and modifiers, "temper:landing", so that two arms of one name are the same.
type Arm struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Cmdline is added to the kernel's command line.
	Cmdline []string `json:"cmdline,omitempty"`
	// BackgroundIdle sets cpu.idle=1 on the background pods.
	BackgroundIdle bool `json:"background_idle,omitempty"`
	// Static gives the critical pod its fence for itself, by exclusive cpusets,
	// and background the pods' other CPUs. Where all vCPUs share one clock this
	// is also the occupied control.
	Static bool `json:"static,omitempty"`
	// Inverted gives background the critical pod's cpu.weight and critical 1: a
	// control that must look bad.
	Inverted bool `json:"inverted,omitempty"`
	// Again is the same arm on another guest seed with the same requests: the
	// A/A control, whose differences are noise.
	Again bool `json:"again,omitempty"`
	// NoProbe leaves out the probe that otherwise runs in every arm: a control
	// for what it costs.
	NoProbe bool `json:"no_probe,omitempty"`
	// Lend is the plan's lending policy; empty for the default.
	Lend string `json:"lend,omitempty"`
	// NoPreempt runs temper without preemption.
	NoPreempt bool `json:"no_preempt,omitempty"`
	// QuotaPeriod is the period of CPU limits, kubelet's cpuCFSQuotaPeriod; 0
	// for its default.
	QuotaPeriod time.Duration `json:"quota_period_ns,omitempty"`
	// QuotaBurst lets a limited cgroup save up as much as one quota.
	QuotaBurst bool `json:"quota_burst,omitempty"`
	// NoLimit leaves out the scenario's CPU limits.
	NoLimit bool `json:"no_limit,omitempty"`
	// Exec is a sched_ext scheduler that the user brings.
	Exec *Exec `json:"exec,omitempty"`
	// Ops is the sched_ext scheduler that must be live in every window, as
	// /sys/kernel/sched_ext/root/ops names it; empty for the kernel's own. What
	// a user's scheduler calls itself is not known: it must be one, and stay.
	Ops string `json:"ops,omitempty"`
}

// Exec is a scheduler's program. It is copied into the guest, started in
// system.slice as a node's agent is, and must attach and stay.
type Exec struct {
	Program      string   `json:"program"` // the file's name
	SHA256       string   `json:"sha256"`
	Args         []string `json:"args,omitempty"`
	ConfigSHA256 string   `json:"config_sha256,omitempty"`
	// Path and Config are where program and configuration lie on the machine
	// that starts the run; no record knows them.
	Path   string `json:"-"`
	Config string `json:"-"`
}

// Arms lists the base arms in the order in which reports show them.
func Arms() []Arm {
	return []Arm{
		{Name: "eevdf", Title: "EEVDF as the distribution ships it: cpu.weight as kubelet sets it, lazy preemption"},
		{
			Name: "eevdf-tuned", Title: "EEVDF at its best: cpu.idle=1 on background, preempt=full",
			Cmdline: []string{"preempt=full"}, BackgroundIdle: true,
		},
		{Name: "static", Title: "EEVDF with exclusive cpusets: the critical pod's CPUs are its own", Static: true},
		{Name: "temper", Title: "Temper, on the distribution's defaults", Ops: "temper"},
		{
			Name: "eevdf-10ms", Title: "EEVDF with CPU limits by periods of 10 ms: kubelet's cpuCFSQuotaPeriod",
			QuotaPeriod: 10 * time.Millisecond,
		},
		{Name: "eevdf-burst", Title: "EEVDF with CPU limits that save up one quota: cpu.max.burst", QuotaBurst: true},
	}
}

// execPrefix begins the name of an arm that runs a user's scheduler.
const execPrefix = "exec:"

// Modifier changes an arm in one respect.
type Modifier struct {
	Name  string
	Title string
	// Base is the only arm it fits; empty for all.
	Base  string
	apply func(*Arm)
}

// Modifiers lists what may follow a base arm's name after a colon.
func Modifiers() []Modifier {
	return []Modifier{
		{"again", "another guest seed, same requests (A/A control)", "", func(a *Arm) { a.Again = true }},
		{"no-probe", "without the probe (what measuring costs)", "", func(a *Arm) { a.NoProbe = true }},
		{"inverted", "background and critical change weights (must look bad)", "eevdf", func(a *Arm) { a.Inverted = true }},
		{"landing", "one CPU of the fence stays free while its pod is busy", "temper", func(a *Arm) { a.Lend = "landing" }},
		{"whole-layer", "the fence is lent only while its pod is idle", "temper", func(a *Arm) { a.Lend = "whole-layer" }},
		{"no-limit", "without the scenario's CPU limits (what they cost)", "", func(a *Arm) { a.NoLimit = true }},
		{"no-preempt", "no waking thread takes a CPU from a running one", "temper", func(a *Arm) { a.NoPreempt = true }},
	}
}

// ParseArms returns the arms called names, in that order.
func ParseArms(names []string) ([]Arm, error) {
	var arms []Arm
	for i, name := range names {
		arm, err := ParseArm(name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(arms[:i], func(a Arm) bool { return a.Name == arm.Name }) {
			return nil, fmt.Errorf("arm %s is given twice", arm.Name)
		}
		arms = append(arms, arm)
	}
	if len(arms) == 0 {
		return nil, errors.New("no arm given")
	}
	return arms, nil
}

// ParseArm returns the arm that name spells: a base arm or exec:PATH, then
// modifiers, each after a colon. Of an exec arm it knows the path and no more.
func ParseArm(name string) (Arm, error) {
	base, mods := splitModifiers(name)
	arm, err := baseArm(base)
	if err != nil {
		return Arm{}, err
	}
	seen := map[string]bool{}
	for _, m := range mods {
		switch {
		case m.Base != "" && m.Base != base:
			return Arm{}, fmt.Errorf("parse arm %q: %s fits %s only", name, m.Name, m.Base)
		case seen[m.Name]:
			return Arm{}, fmt.Errorf("parse arm %q: %s is given twice", name, m.Name)
		case m.Name == "landing" && seen["whole-layer"], m.Name == "whole-layer" && seen["landing"]:
			return Arm{}, fmt.Errorf("parse arm %q: one lending policy at a time", name)
		}
		seen[m.Name] = true
		m.apply(&arm)
		arm.Name += ":" + m.Name
		arm.Title += "; " + m.Title
	}
	return arm, nil
}

// splitModifiers takes known modifiers off the name's end: a path may have
// colons of its own.
func splitModifiers(name string) (base string, mods []Modifier) {
	known := Modifiers()
	for {
		cut := strings.LastIndexByte(name, ':')
		if cut < 0 {
			return name, mods
		}
		i := slices.IndexFunc(known, func(m Modifier) bool { return m.Name == name[cut+1:] })
		if i < 0 {
			return name, mods
		}
		name, mods = name[:cut], slices.Insert(mods, 0, known[i])
	}
}

func baseArm(name string) (Arm, error) {
	if path, ok := strings.CutPrefix(name, execPrefix); ok {
		program := filepath.Base(path)
		if path == "" || program == "/" || program == "." {
			return Arm{}, fmt.Errorf("parse arm %q: exec: needs the path of a program", name)
		}
		return Arm{
			Name: execPrefix + program, Title: program + ", a sched_ext scheduler from outside",
			Exec: &Exec{Program: program, Path: path},
		}, nil
	}
	var known []string
	for _, a := range Arms() {
		if a.Name == name {
			return a, nil
		}
		known = append(known, a.Name)
	}
	return Arm{}, fmt.Errorf("unknown arm %q: one of %s, or exec:PATH; modifiers follow a colon", name, strings.Join(known, ", "))
}

// Base is the arm's name without modifiers.
func (a Arm) Base() string {
	base, _ := splitModifiers(a.Name)
	return base
}

// Scheduled says whether a sched_ext scheduler runs the node.
func (a Arm) Scheduled() bool { return a.Ops != "" || a.Exec != nil }

// Rotate returns the order in which a seed's run visits arms: the list begins
// one further with each seed and every second seed goes backwards, so that no
// arm is always first, or always behind the same one.
func Rotate(arms []Arm, index int) []Arm {
	n := len(arms)
	if n == 0 {
		return nil
	}
	out := slices.Concat(arms[index/2%n:], arms[:index/2%n])
	if index%2 == 1 {
		slices.Reverse(out)
	}
	return out
}
