// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// boot is one run of a machine: everything resolved, nothing running.
type boot struct {
	machine  Machine
	topology Topology
	kernel   kernel
	modules  moduleSet
	qemu     string
	dir      string
	patience time.Duration // with a guest that is to say when it is ready

	accel, clock, clockNote string
	plugin                  string
}

func (b *boot) initrd() string     { return filepath.Join(b.dir, "initrd") }
func (b *boot) port() string       { return filepath.Join(b.dir, "port") }
func (b *boot) consoleLog() string { return filepath.Join(b.dir, "console") }

// Accelerators, as QEMU names them.
const (
	accelKVM = "kvm"
	accelTCG = "tcg"
)

// choose decides what executes the guest and which clock it sees.
func (b *boot) choose(ctx context.Context, c *Cmd, version string) error {
	b.accel, b.clock = accelTCG, ClockHost
	if b.machine.Mode == Functional {
		if c.accel != "" {
			b.accel = c.accel
		} else if kvmWorks(ctx, c.Log) {
			b.accel = accelKVM
		}
		return nil
	}
	b.clock = ClockICount
	if b.machine.Clock == nil {
		b.clockNote = "no clock plugin was asked for"
		return nil
	}
	plugin, err := b.machine.Clock(ctx, b.qemu, version)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		b.clockNote = err.Error()
		c.Log.WarnContext(ctx, "using one clock for all vCPUs", "err", err)
		return nil
	}
	b.clock, b.plugin = ClockPerVCPU, plugin
	return nil
}

// checksTimers tells whether the guest is to say that every CPU's timer fires. Where vCPUs
// have threads of their own one does not at times; where time is virtual nothing may be
// done that is not the command's.
func (b *boot) checksTimers() bool { return b.machine.Mode == Functional }

// args is QEMU's command line.
func (b *boot) args() []string {
	a := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", b.kernel.path, "-initrd", b.initrd(), "-append", b.commandLine(),
		"-chardev", "file,id=console,path=" + b.consoleLog(), "-serial", "chardev:console",
		// Without ioeventfd a guest's write is carried out at once by the vCPU
		// that made it, which keeps deterministic runs identical.
		"-device", "virtio-serial-pci,ioeventfd=off",
		"-chardev", "file,id=port,path=" + b.port(), "-device", "virtserialport,chardev=port,name=temper",
	}
	a = append(a, topologyArgs(b.topology, b.machine.MemoryMB)...)
	a = append(a, networkArgs(b.machine.Forward)...)
	switch {
	case b.accel == accelKVM:
		return append(a, "-accel", "kvm", "-cpu", "host")
	case b.machine.Mode == Functional:
		return append(a, "-accel", "tcg,thread=multi", "-cpu", emulatedCPU)
	}
	a = append(a, "-accel", "tcg,thread=single", "-cpu", emulatedCPU,
		"-icount", fmt.Sprintf("shift=%d,sleep=off", bits.TrailingZeros(uint(b.machine.InstructionNs))), "-rtc", "base=2026-01-01,clock=vm", "-seed", strconv.Itoa(b.machine.Seed))
	if b.plugin != "" {
		return append(a, "-plugin", b.plugin+b.clockOptions())
	}
	// A timer of 20 µs of virtual time bounds how long one vCPU runs before the
	// next, and so how late an interrupt from another one comes. The plugin has
	// a finer bound of its own.
	return append(a, "-netdev", "hubport,id=q0,hubid=9", "-object", "filter-buffer,id=fb0,netdev=q0,interval=20")
}

// emulatedCPU has all that QEMU can emulate but MONITOR, with which idle vCPUs never
// halt, and the promise that copying byte by byte (REP MOVSB) is fast. A processor
// that makes it copies dozens of bytes in a nanosecond, the emulator one in an
// instruction: kernel and libraries copy by words where nobody promises.
const emulatedCPU = "max,-monitor,-erms,-fsrm,-fzrm,-fsrs,-fsrc"

// clockOptions give a slower processor the quantum and the price of a pause that
// the plugin's own are in instructions.
func (b *boot) clockOptions() string {
	ns := b.machine.InstructionNs
	if ns == 1 {
		return ""
	}
	return fmt.Sprintf(",quantum=%d,pause=%d", 500*ns, 100*ns)
}

// networkArgs are QEMU's arguments for a card that leads to this host alone.
func networkArgs(forward map[int]int) []string {
	if len(forward) == 0 {
		return nil
	}
	net := []string{"user,id=net"}
	for _, port := range slices.Sorted(maps.Keys(forward)) {
		net = append(net, fmt.Sprintf("hostfwd=tcp:127.0.0.1:%d-:%d", port, forward[port]))
	}
	// The card's boot ROM would be a package more, and nothing boots from it.
	return []string{"-netdev", strings.Join(net, ","), "-device", "virtio-net-pci,netdev=net,romfile="}
}

// commandLine is the kernel's.
func (b *boot) commandLine() string {
	words := []string{
		"console=ttyS0", "quiet", "loglevel=4", "panic=-1", "oops=panic", "rdinit=/init",
		// Checking the signatures of built-in certificates is a fifth of all
		// instructions of a boot, and no module is ever loaded.
		"initcall_blacklist=load_system_certificate_list",
		// Nor does anything encrypt: the self tests of ciphers are 1.7 billion instructions.
		"cryptomgr.notests",
	}
	if b.accel == accelTCG {
		// The pause that 1990s processors needed between INIT and start-up.
		words = append(words, "cpu_init_udelay=0")
	}
	if b.machine.Mode == Functional {
		if b.accel == accelTCG {
			// On a loaded host the self tests of timer and TSC fail now and then,
			// the latter leaving a clock that takes microseconds to read.
			words = append(words, "no_timer_check", "tsc=reliable")
		}
	} else {
		// khugepaged and random layouts make one run unlike the next.
		words = append(words, "nokaslr", "norandmaps", "mitigations=off", "transparent_hugepage=never")
		// The TSC counts nanoseconds and HZ is 250. Told so, the kernel does not
		// measure for 100 ms on each CPU, a third of what booting costs.
		words = append(words, "lpj=4000000")
		if b.plugin != "" {
			words = append(words, "tsc=reliable")
		}
	}
	return strings.Join(append(words, b.machine.Append...), " ")
}
