// SPDX-License-Identifier: Apache-2.0

package guest

import "time"

// Clocks a guest can run on, as records name them.
const (
	ClockPerVCPU = "per-vcpu plugin" // each vCPU counts its own instructions
	ClockICount  = "icount"          // all vCPUs share one instruction counter
	ClockHost    = "host"            // time passes as on the host
)

// Provenance is what has to be known to run a command again.
type Provenance struct {
	QEMUVersion string   `json:"qemu_version"`
	QEMUArgs    []string `json:"qemu_args"`
	// Accel is "kvm" or "tcg".
	Accel string `json:"accel"`
	// Clock is one of the constants above; ClockNote says why a better one
	// was not used.
	Clock     string `json:"clock"`
	ClockNote string `json:"clock_note,omitempty"`
	// KernelRelease is what uname -r says, KernelPackage where it is from.
	KernelRelease string `json:"kernel_release"`
	KernelPackage string `json:"kernel_package"`
	KernelVersion string `json:"kernel_version"`
	CommandLine   string `json:"command_line"`
	// Packages are the versions of every package in the root file system.
	Packages map[string]string `json:"packages"`
	// InitrdSHA256 is of all that the machine booted with but its kernel: root
	// file system, copied files, job and its input. PluginSHA256 is of the
	// clock's plugin, empty without one.
	InitrdSHA256 string `json:"initrd_sha256"`
	PluginSHA256 string `json:"plugin_sha256,omitempty"`
	// Boot is from the machine's power-on to the command's start and Command
	// how long it ran, both by the guest's clock.
	Boot    time.Duration `json:"boot_ns"`
	Command time.Duration `json:"command_ns"`
}
