// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"slices"
)

// Mode is how a guest's time passes.
type Mode int

const (
	// Functional runs vCPUs on as many host threads: fast, and its timings
	// mean nothing.
	Functional Mode = iota
	// Deterministic runs in virtual time: one instruction is one nanosecond, or
	// Machine.InstructionNs, and the same seed gives the same samples on any host.
	Deterministic
)

// ParseMode reads a mode by the name String gives it.
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{Functional, Deterministic} {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("parse mode %q: want functional or deterministic", s)
}

// String names the mode as flags and records do.
func (m Mode) String() string {
	if m == Deterministic {
		return "deterministic"
	}
	return "functional"
}

// Defaults of a Machine whose field is zero.
const (
	DefaultKernel   = "7.2"
	DefaultTopology = "1s4c1t"
	DefaultMemoryMB = 1024
)

// ModulesDir is where a guest finds Machine.Modules.
const ModulesDir = "/lib/modules"

// ClockFunc returns the plugin that gives each vCPU of the QEMU at path a
// clock of its own, or why this QEMU cannot have one.
type ClockFunc func(ctx context.Context, qemuPath, qemuVersion string) (plugin string, err error)

// Machine is the computer a command runs on. Its zero value is a usable one.
type Machine struct {
	// Kernel is a name of the table in kernel.go, such as "7.2".
	Kernel string
	// Topology is sockets, cores per socket and threads per core: "2s4c2t".
	Topology string
	// Mode is how time passes.
	Mode Mode
	// InstructionNs is how many nanoseconds of virtual time an instruction
	// takes, a power of two, by default 1. More is a slower processor, of which
	// an hour is affordable.
	InstructionNs int
	// MemoryMB is the size of memory, shared evenly by the NUMA nodes.
	MemoryMB int
	// Append are further words for the kernel's command line.
	Append []string
	// Seed feeds every random source in deterministic mode.
	Seed int
	// Packages are Debian packages whose files, and the shared libraries
	// these need, are part of the root file system.
	Packages []string
	// Suite is the Debian suite of Packages, by default the one that all of the
	// root file system is from.
	Suite string
	// Modules are modules of the kernel that are put, with those that they
	// need, into ModulesDir, in the order of names; loading is the command's.
	Modules []string
	// Forward gives the guest a network: ports of this host's loopback, and
	// where they lead in the guest. Its card, for which it needs the module
	// virtio_net, has to have an address in 10.0.2.0/24, 10.0.2.15 for what is
	// forwarded. There 10.0.2.2 is this host's loopback.
	Forward map[int]int
	// Files are copied in: guest path to host path. A directory is copied
	// with all that is below it.
	Files map[string]string
	// Clock, where it is set and works, replaces the one instruction clock
	// that all vCPUs share in deterministic mode. See Provenance.Clock.
	Clock ClockFunc
}

// withDefaults returns the machine with every zero field set.
func (m Machine) withDefaults() Machine {
	if m.Kernel == "" {
		m.Kernel = DefaultKernel
	}
	if m.Topology == "" {
		m.Topology = DefaultTopology
	}
	if m.InstructionNs == 0 {
		m.InstructionNs = 1
	}
	if m.MemoryMB == 0 {
		m.MemoryMB = DefaultMemoryMB
	}
	if m.Suite == "" {
		m.Suite = rootSuite
	}
	m.Packages = slices.Sorted(slices.Values(m.Packages))
	m.Packages = slices.Compact(m.Packages)
	return m
}

// maxInstructionNs is the longest that QEMU's -icount takes: shift=10.
const maxInstructionNs = 1024

func (m Machine) checkInstruction() error {
	ns := m.InstructionNs
	if ns < 1 || ns > maxInstructionNs || ns&(ns-1) != 0 {
		return fmt.Errorf("an instruction of %d ns: want a power of two up to %d", ns, maxInstructionNs)
	}
	return nil
}
