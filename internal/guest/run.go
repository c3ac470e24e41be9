// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/guest/wire"
)

// Run boots the machine, runs the command on it and waits for its end. It
// returns nil if the command succeeded, otherwise an error that wraps
// *ExitError, *StartError, *PanicError, *NotReadyError, *TimeoutError or *LostError if the
// machine was started at all.
func (c *Cmd) Run(ctx context.Context) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	return b.run(ctx, c)
}

// Describe does all that Run does before the machine is started, and tells what
// it would run on. The Cmd cannot be run afterwards: its input has been read.
func (c *Cmd) Describe(ctx context.Context) (Provenance, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b, err := c.prepare(ctx)
	if err != nil {
		return Provenance{}, err
	}
	return c.prov, os.RemoveAll(b.dir)
}

// prepare resolves every part and writes what this one run needs.
func (c *Cmd) prepare(ctx context.Context) (*boot, error) {
	b, root, err := c.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "temper-guest-"); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	if err := b.writeInitrd(c, root); err != nil {
		os.RemoveAll(b.dir)
		return nil, err
	}
	c.prov.QEMUArgs = b.args()
	return b, nil
}

// resolve finds the machine's parts and fills in where they are from.
func (c *Cmd) resolve(ctx context.Context) (*boot, rootfs, error) {
	b := &boot{machine: c.Machine.withDefaults(), patience: patience}
	var root rootfs
	var err error
	if err = b.machine.checkInstruction(); err != nil {
		return nil, root, err
	}
	if b.topology, err = ParseTopology(b.machine.Topology); err != nil {
		return nil, root, err
	}
	if b.kernel, err = resolveKernel(ctx, b.machine.Kernel, c.Log); err != nil {
		return nil, root, err
	}
	var version, init string
	if b.qemu, version, err = resolveQEMU(ctx, c.Log); err != nil {
		return nil, root, err
	}
	if init, err = resolveInit(ctx, c.Log); err != nil {
		return nil, root, err
	}
	if root, err = (rootSpec{b.machine.Suite, b.machine.Packages, init}).resolve(ctx, c.Log); err != nil {
		return nil, root, err
	}
	if b.modules, err = resolveModules(ctx, b.kernel, b.machine.Modules, c.Log); err != nil {
		return nil, root, err
	}
	if err := b.choose(ctx, c, version); err != nil {
		return nil, root, err
	}
	// Options may follow the plugin's path: they are in the emulator's arguments.
	file, _, _ := strings.Cut(b.plugin, ",")
	plugin, err := hashFile(file)
	if err != nil {
		return nil, root, err
	}
	c.prov = Provenance{
		PluginSHA256: plugin, QEMUVersion: version, Accel: b.accel, Clock: b.clock, ClockNote: b.clockNote,
		KernelRelease: b.kernel.Release, KernelPackage: b.kernel.Package, KernelVersion: b.kernel.Version,
		CommandLine: b.commandLine(), Packages: root.Packages,
	}
	return b, root, nil
}

// writeInitrd writes the root file system followed by what is this run's own.
// The kernel unpacks one archive after the other.
func (b *boot) writeInitrd(c *Cmd, root rootfs) error {
	own, err := c.files(b.machine.Files, b.checksTimers())
	if err != nil {
		return err
	}
	if err := b.modules.copyTo(own); err != nil {
		return err
	}
	f, err := os.Create(b.initrd())
	if err != nil {
		return fmt.Errorf("write initrd: %w", err)
	}
	defer f.Close()
	base, err := os.Open(root.path)
	if err != nil {
		return fmt.Errorf("open root file system: %w", err)
	}
	defer base.Close()
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<20)
	if _, err := io.Copy(w, base); err != nil {
		return fmt.Errorf("write initrd: %w", err)
	}
	if err := errors.Join(own.write(w), w.Flush()); err != nil {
		return fmt.Errorf("write initrd: %w", err)
	}
	c.prov.InitrdSHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// hashFile is the SHA-256 of the file at path, nothing where there is none.
func hashFile(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// files are what this command adds to the root file system: its job, its
// standard input, its directory and what is copied in.
func (c *Cmd) files(copied map[string]string, checkTimers bool) (tree, error) {
	job := wire.Job{Path: c.Path, Args: c.Args, Dir: c.Dir, CheckTimers: checkTimers, Env: append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "TERM=dumb", "TEMPER_GUEST=1", "OUT=" + wire.OutDir,
	}, c.Env...)}
	if len(job.Args) == 0 {
		job.Args = []string{c.Path}
	}
	b, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("encode job: %w", err)
	}
	t := tree{}
	t.file(wire.JobPath, b)
	if c.Stdin != nil {
		in, err := io.ReadAll(c.Stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		t.file(wire.StdinPath, in)
	}
	if c.Dir != "" {
		t.dir(c.Dir, 0o755)
	}
	for to, from := range copied {
		if err := t.copyFrom(to, from); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// patience is how long a guest may take to be ready. On a host with several times as much
// to do as CPUs it takes half a minute.
const patience = 2 * time.Minute

// errNotReady is why run gives up a guest of which a timer is dead.
var errNotReady = errors.New("not ready")

// run starts QEMU and follows it to its end.
func (b *boot) run(ctx context.Context, c *Cmd) error {
	started := time.Now()
	// The file exists before QEMU opens it, so that it can be followed.
	port, err := os.Create(b.port())
	if err != nil {
		return fmt.Errorf("create port file: %w", err)
	}
	defer port.Close()
	var said bytes.Buffer
	qemu := exec.Command(b.qemu, b.args()...)
	qemu.Stdout, qemu.Stderr = &said, &said
	exited, err := startProcess(qemu)
	if err != nil {
		return fmt.Errorf("start qemu: %w", err)
	}
	s := &session{cmd: c, tail: &tailReader{f: port, poll: followPoll, stop: make(chan struct{})}}
	var late <-chan time.Time
	ready := make(chan struct{})
	if b.checksTimers() {
		s.ready, late = ready, time.After(b.patience)
	}
	followed := make(chan error, 1)
	go func() { followed <- s.follow() }()
	var cause error
	ended := false
	for waits := true; waits; {
		waits = false
		select {
		case err = <-followed:
			ended = true
		case <-exited:
		case <-ready:
			ready, late, waits = nil, nil, true
		case <-late:
			cause = errNotReady
		case <-ctx.Done():
			cause = context.Cause(ctx)
		}
	}
	stopProcess(qemu.Process, exited)
	if !ended {
		close(s.tail.stop)
		err = <-followed
	}
	return b.verdict(c, s, outcome{err, cause, time.Since(started), b.console(c.Console), strings.TrimSpace(said.String())})
}

// startProcess starts cmd and closes exited when it has ended. The process
// does not outlive this one, whatever ends it.
func startProcess(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	up, done := make(chan error, 1), make(chan struct{})
	go func() {
		// The death signal follows the thread that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		up <- err
		if err == nil {
			_ = cmd.Wait() // being told to stop is no success; what counts is on the port
		}
	}()
	return done, <-up
}

// outcome is how a machine ended.
type outcome struct {
	stream   error // of reading the port
	cause    error // of the context
	ran      time.Duration
	console  string
	emulator string
}

// verdict turns what is known into Run's error.
func (b *boot) verdict(c *Cmd, s *session, o outcome) error {
	tail := lastLines(o.console, consoleLines)
	if s.result == nil {
		switch {
		case strings.Contains(o.console, "Kernel panic - not syncing"):
			return &PanicError{Console: panicTail(o.console)}
		case errors.Is(o.cause, errNotReady):
			return &NotReadyError{After: o.ran, Console: tail}
		case o.cause != nil:
			return &TimeoutError{After: o.ran, Console: tail, Cause: o.cause}
		case o.stream != nil && !errors.Is(o.stream, io.EOF) && !errors.Is(o.stream, io.ErrUnexpectedEOF):
			return o.stream
		}
		return &LostError{Emulator: o.emulator, Console: tail}
	}
	r := s.result
	if r.Release != "" && r.Release != c.prov.KernelRelease {
		return fmt.Errorf("check guest kernel: it says %s, want %s", r.Release, c.prov.KernelRelease)
	}
	c.prov.Boot = time.Duration(r.StartedNs)
	c.prov.Command = time.Duration(r.EndedNs - r.StartedNs)
	switch {
	case r.StartError != "":
		return &StartError{Reason: r.StartError}
	case r.Code != 0:
		return &ExitError{Code: r.Code, Signal: r.Signal}
	}
	if r.OutError != "" {
		return fmt.Errorf("read guest output: %s", r.OutError)
	}
	return s.outErr
}

// grace is how long QEMU may take to end when asked to.
const grace = 5 * time.Second

// stopProcess ends QEMU: the guest has said all it had to, or is given up.
func stopProcess(p *os.Process, exited <-chan struct{}) {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-exited:
		return
	case <-time.After(grace):
	}
	_ = p.Kill()
	<-exited
}

// consoleLines is how much of the console an error shows.
const consoleLines = 40

// console returns what the kernel printed.
func (b *boot) console(w io.Writer) string {
	text, err := os.ReadFile(b.consoleLog())
	if err != nil {
		return ""
	}
	text = bytes.ReplaceAll(text, []byte("\r"), nil)
	if w != nil {
		_, _ = w.Write(text)
	}
	return string(text)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// panicTail begins with the report that led to the panic, where there is one.
func panicTail(s string) string {
	for _, mark := range []string{"------------[ cut here", "BUG: ", "Oops", "panic: ", "Kernel panic"} {
		if i := strings.Index(s, mark); i >= 0 {
			lines := strings.SplitN(s[i:], "\n", 2*consoleLines+1)
			return strings.Join(lines[:min(len(lines), 2*consoleLines)], "\n")
		}
	}
	return lastLines(s, consoleLines)
}
