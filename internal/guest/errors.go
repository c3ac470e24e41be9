// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"regexp"
	"time"
)

// ExitError is a command that ran and did not succeed.
type ExitError struct {
	// Code is the exit status; 128 + the signal's number for a killed command.
	Code int
	// Signal is what killed the command, zero if it exited.
	Signal int
}

// Error says how the command ended.
func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("guest command killed by signal %d", e.Signal)
	}
	return fmt.Sprintf("guest command exited with status %d", e.Code)
}

// StartError is a command that process 1 of the guest could not start.
type StartError struct {
	Reason string
}

// Error gives the reason the guest gave.
func (e *StartError) Error() string { return "start guest command: " + e.Reason }

// PanicError is a guest kernel that panicked.
type PanicError struct {
	// Console is the end of what the kernel printed.
	Console string
}

// Error shows the console's tail: the kernel's own words are the cause.
func (e *PanicError) Error() string { return "guest kernel panicked:\n" + e.Console }

// IsStaleBreakpoint reports whether the kernel died of a breakpoint that it had
// taken out of its code again, for its memory holds another instruction there.
// With a thread per vCPU the emulator can translate what is about to be
// overwritten, at an attach or a detach: the fault is its own, and rare.
func (e *PanicError) IsStaleBreakpoint() bool {
	m := trapped.FindStringSubmatch(e.Console)
	return m != nil && m[1] != "cc"
}

// trapped finds the byte before the instruction pointer, where a breakpoint was
// that is still there.
var trapped = regexp.MustCompile(`(?s)Oops: int3:.*?Code: (?:[0-9a-f]{2} )*([0-9a-f]{2}) <`)

// NotReadyError is a guest in which a CPU's timer did not fire before the command was to
// start, or that took too long to get there. With a thread per vCPU QEMU 10.0.2 was seen to
// lose one at the boot, on a busy host: rare as well, and nothing of the guest is to blame.
type NotReadyError struct {
	After   time.Duration
	Console string
}

// Error tells how long the guest had and what its kernel last printed.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("guest not ready after %v: a CPU's timer does not fire, or the host is too busy; console:\n%s", e.After.Round(time.Second), e.Console)
}

// TimeoutError is a guest that was still running when its context ended.
type TimeoutError struct {
	After   time.Duration
	Console string
	// Cause is the context's error.
	Cause error
}

// Error tells how long the guest ran and what its kernel last printed.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("guest stopped after %v: %v; console:\n%s", e.After.Round(time.Second), e.Cause, e.Console)
}

// Unwrap lets callers ask for context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() error { return e.Cause }

// LostError is a machine that ended without telling the command's status.
type LostError struct {
	// Emulator is what QEMU printed.
	Emulator string
	Console  string
}

// IsEmulatorCrash reports whether the emulator found a fault of its own. With a
// thread per vCPU QEMU 10.0.2 was seen to stop at the boot with an assertion on
// its memory map; rare, too.
func (e *LostError) IsEmulatorCrash() bool { return assertion.MatchString(e.Emulator) }

var assertion = regexp.MustCompile("Assertion `.*' failed")

// Error shows both ends of the machine.
func (e *LostError) Error() string {
	return fmt.Sprintf("guest ended without a status; emulator: %s; console:\n%s", e.Emulator, e.Console)
}
