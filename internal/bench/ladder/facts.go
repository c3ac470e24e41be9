// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
)

// Facts are where the windows come from: by name, by arm, the values seen.
type Facts map[string]map[string][]string

// factNames is the order in which facts are shown.
var factNames = []string{
	"campaign", "commit", "programs", "kernel", "kernel package", "kernel command line", "clock", "topology",
	"cluster", "cpu.weight", "emulator", "emulator arguments", "clock plugin", "packages in the guest", "scheduler program", "host", "started",
}

// Fact is one line of provenance. What differs between arms is said by arm.
type Fact struct {
	Name   string
	Values []string
}

func (f Facts) add(rec *bench.Record) {
	m := rec.Machine
	for name, value := range map[string]string{
		"campaign": rec.Campaign, "commit": rec.Commit,
		"programs": programs(rec.Build), "kernel": m.Kernel, "kernel package": m.KernelPackage,
		"kernel command line": m.Cmdline, "clock": clock(m), "topology": m.Topology, "cluster": m.Cluster.String(),
		"cpu.weight": weights(rec.Window.Weights), "emulator": m.Emulator,
		"emulator arguments": arguments(m.EmulatorArgs), "clock plugin": digest(m.PluginSHA256),
		"packages in the guest": packages(m.Packages), "scheduler program": scheduler(rec.Arm.Exec),
		"host":    fmt.Sprintf("%d × %s", rec.Host.CPUs, rec.Host.CPU),
		"started": rec.Started.Format("2006-01-02"),
	} {
		if value == "" {
			continue
		}
		if f[name] == nil {
			f[name] = map[string][]string{}
		}
		if !slices.Contains(f[name][rec.Arm.Name], value) {
			f[name][rec.Arm.Name] = append(f[name][rec.Arm.Name], value)
		}
	}
}

// List returns the facts in their order.
func (f Facts) List() []Fact {
	var out []Fact
	for _, name := range factNames {
		if len(f[name]) > 0 {
			out = append(out, Fact{name, byArm(f[name])})
		}
	}
	return out
}

// byArm says a value once if all arms have the same, else by arm.
func byArm(values map[string][]string) []string {
	groups := map[string][]string{}
	for arm, vs := range values {
		slices.Sort(vs)
		text := strings.Join(vs, "\n")
		groups[text] = append(groups[text], arm)
	}
	if len(groups) == 1 {
		for text := range groups {
			return strings.Split(text, "\n")
		}
	}
	var out []string
	for _, text := range slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Compare(len(groups[b]), len(groups[a]))*2 + cmp.Compare(a, b)
	}) {
		slices.Sort(groups[text])
		out = append(out, strings.Join(groups[text], ", ")+": "+strings.ReplaceAll(text, "\n", " · "))
	}
	return out
}

func programs(b bench.Build) string {
	parts := []string{b.Go}
	if b.NodeSHA256 != "" {
		parts = append(parts, "temper-lab-node "+digest(b.NodeSHA256))
	}
	if b.TemperSHA256 != "" {
		parts = append(parts, "temper "+digest(b.TemperSHA256))
	}
	if b.AgentSHA256 != "" {
		parts = append(parts, "temper-agent "+digest(b.AgentSHA256))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// digest shows as much of a SHA-256 as tells it from others.
func digest(sum string) string {
	if sum == "" {
		return ""
	}
	return "sha256 " + sum[:min(12, len(sum))]
}

func clock(m bench.Machine) string {
	text := m.Clock
	if m.ClockQuantum > 0 {
		text += fmt.Sprintf("; the vCPUs' clocks differ by at most %v", m.ClockQuantum)
	}
	if m.ClockNote != "" {
		text += "; " + m.ClockNote
	}
	return text
}

// weights leaves out the background pods, which are alike: their parent and the
// first stand for all.
func weights(byPath map[string]int) string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(byPath)) {
		if strings.HasPrefix(path, bench.BestEffort+"/") || strings.HasSuffix(path, "/ctr") {
			continue
		}
		out = append(out, fmt.Sprintf("%s %d", path, byPath[path]))
	}
	return strings.Join(out, ", ")
}

func packages(versions map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		out = append(out, name+" "+versions[name])
	}
	return strings.Join(out, ", ")
}

// arguments leaves out what differs from seed to seed by design.
func arguments(args []string) string {
	args = slices.Clone(args)
	if i := slices.Index(args, "-seed"); i >= 0 && i+1 < len(args) {
		args[i+1] = "SEED"
	}
	return strings.Join(args, " ")
}

func scheduler(e *bench.Exec) string {
	if e == nil {
		return ""
	}
	text := e.Program + " " + digest(e.SHA256)
	if e.ConfigSHA256 != "" {
		text += ", configuration " + digest(e.ConfigSHA256)
	}
	return strings.TrimSpace(text + " " + strings.Join(e.Args, " "))
}
