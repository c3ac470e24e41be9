// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"io"
	"log/slog"
)

// Cmd is one command on one machine. It is used once, like exec.Cmd.
//
//	c := guest.Command(guest.Machine{Packages: []string{"memcached"}}, "/bin/uname", "-r")
//	c.Stdout = os.Stdout
//	err := c.Run(ctx)
type Cmd struct {
	// Machine is where the command runs.
	Machine Machine
	// Path is the command's file in the guest.
	Path string
	// Args are the arguments, Args[0] being the command's own name.
	Args []string
	// Env are "KEY=value" entries on top of PATH, HOME, TERM, OUT and
	// TEMPER_GUEST=1, by which tests know that they may do anything.
	Env []string
	// Dir is the working directory in the guest, "/" if empty.
	Dir string
	// Stdin, if set, is read to its end before the machine starts: input that
	// arrived while it ran would make deterministic runs differ.
	Stdin io.Reader
	// Stdout and Stderr receive the command's output as it comes; nil discards it.
	Stdout, Stderr io.Writer
	// Out is a directory on the host that receives what the command left in
	// the guest's /out ($OUT there); empty drops it.
	Out string
	// Console, if set, receives all the kernel's messages.
	Console io.Writer
	// Log tells of first-time downloads; nil is silent.
	Log *slog.Logger

	prov  Provenance
	accel string // set by the probe of the accelerator
}

// Command returns a Cmd that runs path with args on m.
func Command(m Machine, path string, args ...string) *Cmd {
	return &Cmd{Machine: m, Path: path, Args: append([]string{path}, args...)}
}

// ProgressLog returns a logger for Cmd.Log that prints lines without time and
// level: they are for people who wait for a download.
func ProgressLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// Provenance tells what the command ran on. It is complete once Run returned.
func (c *Cmd) Provenance() Provenance { return c.prov }
