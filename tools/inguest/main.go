// SPDX-License-Identifier: Apache-2.0

// Command inguest runs a command inside a QEMU guest, and is made to stand in
// for the host in "go test -exec":
//
//	go test -exec "inguest -kernel 7.2 -topology 1s4c1t" ./internal/sched/
//
// The test binary runs in a directory that holds a copy of its package's
// testdata, with the caller's TEMPER_* and REQUIRE_ALL variables, and with
// TEMPER_VIRTUAL_TIME=1 where time is virtual; its exit status becomes inguest's.
// What it leaves in $OUT comes back to -out. With -trace a deterministic guest also
// shows why its threads waited, as "temper-lab rerun --trace" does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench/trace"
	"github.com/temper-sched/temper/internal/guest"
)

// exitInfra is the status for everything that is not the command's own doing,
// apart from what commands use.
const exitInfra = 125

// maxGuests is how many guests a command gets while the emulator is at fault: the
// next one may meet the same fault (docs/known-issues.md).
const maxGuests = 4

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "inguest:", err)
		return 2
	case o.printQEMU:
		path, version, err := guest.QEMU(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "inguest:", err)
			return exitInfra
		}
		fmt.Println(path, version)
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	clock := guest.ClockFunc(clock.Plugin)
	if o.trace != "" {
		look, err := trace.Prepare(ctx, o.machine.Kernel, o.trace, guest.ProgressLog(os.Stderr))
		if err != nil {
			fmt.Fprintln(os.Stderr, "inguest:", err)
			return exitInfra
		}
		defer look.Remove()
		clock = look.Clock
	}
	var cmd *guest.Cmd
	for range maxGuests {
		if cmd, err = o.command(clock); err == nil {
			err = cmd.Run(ctx)
		}
		fault := emulatorFault(err)
		if fault == "" {
			break
		}
		fmt.Fprintf(os.Stderr, "inguest: %s\n%v\n", fault, err)
	}
	if o.verbose && cmd != nil {
		p := cmd.Provenance()
		fmt.Fprintf(os.Stderr, "inguest: kernel %s, %s, clock %s, boot %v, command %v\n",
			p.KernelRelease, p.Accel, p.Clock, p.Boot.Round(time.Millisecond), p.Command.Round(time.Millisecond))
	}
	if o.trace != "" {
		if err := trace.ShowLongest(os.Stderr, o.trace, o.waits); err != nil {
			fmt.Fprintln(os.Stderr, "inguest:", err)
		}
	}
	return status(err)
}

// emulatorFault names what neither the command nor the kernel is to blame for.
func emulatorFault(err error) string {
	if panicked, ok := errors.AsType[*guest.PanicError](err); ok && panicked.IsStaleBreakpoint() {
		return "the emulator ran a breakpoint that the kernel had removed"
	}
	if lost, ok := errors.AsType[*guest.LostError](err); ok && lost.IsEmulatorCrash() {
		return "the emulator crashed"
	}
	if _, ok := errors.AsType[*guest.NotReadyError](err); ok {
		return "the emulator lost a timer at the boot"
	}
	return ""
}

// status is the command's own status where it has one.
func status(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*guest.ExitError](err); ok && exit.Signal == 0 {
		return exit.Code
	}
	fmt.Fprintln(os.Stderr, "inguest:", err)
	if exit, ok := errors.AsType[*guest.ExitError](err); ok {
		return exit.Code
	}
	return exitInfra
}

// options are the command line.
type options struct {
	machine   guest.Machine
	timeout   time.Duration
	out       string
	trace     string
	waits     string
	console   bool
	verbose   bool
	printQEMU bool
	copies    []string
	args      []string
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("inguest", flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: inguest [flags] command [argument ...]")
		fs.PrintDefaults()
	}
	fs.StringVar(&o.machine.Kernel, "kernel", guest.DefaultKernel, "kernel: "+strings.Join(guest.Kernels(), ", "))
	fs.StringVar(&o.machine.Topology, "topology", guest.DefaultTopology, "sockets, cores per socket and threads per core")
	mode := fs.String("mode", guest.Functional.String(), "functional or deterministic")
	fs.IntVar(&o.machine.InstructionNs, "instruction-ns", 1, "nanoseconds that an instruction takes in a deterministic guest, a power of two")
	fs.IntVar(&o.machine.MemoryMB, "memory", guest.DefaultMemoryMB, "memory in MiB")
	fs.IntVar(&o.machine.Seed, "seed", 1, "seed of a deterministic guest")
	packages := fs.String("packages", "", "Debian packages to have in the guest, separated by commas")
	extra := fs.String("append", "", "words for the kernel's command line")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long the guest may run")
	fs.StringVar(&o.out, "out", "", "directory that receives what the command leaves in $OUT")
	fs.StringVar(&o.trace, "trace", "", "write a trace of a deterministic guest's scheduler into this `file`")
	fs.StringVar(&o.waits, "waits", "", "with -trace, show the longest waits of the threads of this `name`")
	fs.BoolVar(&o.console, "console", false, "show the kernel's messages at the end")
	fs.BoolVar(&o.verbose, "v", false, "tell what the guest was made of")
	fs.BoolVar(&o.printQEMU, "print-qemu", false, "print QEMU's path and version and exit")
	fs.Func("copy", "copy a file or directory into the guest, as `host:guest`; may be repeated", func(s string) error {
		o.copies = append(o.copies, s)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.machine.Mode, err = guest.ParseMode(*mode); err != nil {
		return o, err
	}
	if _, err := guest.ParseTopology(o.machine.Topology); err != nil {
		return o, err
	}
	switch {
	case o.waits != "" && o.trace == "":
		return o, errors.New("-waits needs -trace FILE")
	case o.trace != "" && o.machine.Mode != guest.Deterministic:
		return o, errors.New("-trace needs -mode deterministic: only there does looking change nothing")
	}
	o.machine.Append = strings.Fields(*extra)
	o.machine.Packages = strings.FieldsFunc(*packages, func(r rune) bool { return r == ',' || r == ' ' })
	if o.args = fs.Args(); len(o.args) == 0 && !o.printQEMU {
		return o, errors.New("no command to run; -h lists the flags")
	}
	return o, nil
}

// command is the guest's side of the options. A command that is a file of this
// host is taken along; any other name is one of the guest's own.
func (o options) command(clock guest.ClockFunc) (*guest.Cmd, error) {
	m := o.machine
	m.Clock = clock
	m.Files = map[string]string{}
	for _, c := range o.copies {
		from, to, ok := strings.Cut(c, ":")
		if !ok || !filepath.IsAbs(to) {
			return nil, fmt.Errorf("parse copy %q: want host:guest, the latter absolute", c)
		}
		m.Files[to] = from
	}
	dir, path := "/", o.args[0]
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && strings.Contains(path, "/") && !inGuest(path) {
		dir = "/test"
		m.Files["/test/"+filepath.Base(path)] = path
		path = "/test/" + filepath.Base(path)
		if _, err := os.Stat("testdata"); err == nil {
			m.Files["/test/testdata"] = "testdata"
		}
	}
	cmd := guest.Command(m, path, testArgs(o.args[1:])...)
	cmd.Dir, cmd.Out = dir, o.out
	cmd.Env = passed(os.Environ())
	if m.Mode == guest.Deterministic {
		cmd.Env = append(cmd.Env, "TEMPER_VIRTUAL_TIME=1")
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Log = guest.ProgressLog(os.Stderr)
	if o.console {
		cmd.Console = os.Stderr
	}
	return cmd, nil
}

// inGuest are directories whose files mean the guest's own, should both have
// them.
func inGuest(path string) bool {
	return slices.ContainsFunc([]string{"/bin/", "/sbin/", "/usr/"}, func(d string) bool { return strings.HasPrefix(path, d) })
}

// testArgs drops what go test adds for files of its own on this host.
func testArgs(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return strings.HasPrefix(a, "-test.testlogfile=") || strings.HasPrefix(a, "-test.gocoverdir=")
	})
}

// passed are the variables that tests may be steered by.
func passed(env []string) []string {
	var out []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "TEMPER_") || strings.HasPrefix(kv, "REQUIRE_ALL=") {
			out = append(out, kv)
		}
	}
	return out
}
