// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/guest/wire"
)

// portOf is a finished guest's port file with these frames.
func portOf(t *testing.T, frames ...[]byte) *tailReader {
	t.Helper()
	p := filepath.Join(t.TempDir(), "port")
	if err := os.WriteFile(p, bytes.Join(frames, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	stop := make(chan struct{})
	close(stop)
	return &tailReader{f: f, poll: time.Millisecond, stop: stop}
}

func frame(k wire.Kind, s string) []byte { return wire.Append(nil, k, []byte(s)) }

func end(t *testing.T, r wire.Result) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Append(nil, wire.End, b)
}

func TestFollow(t *testing.T) {
	var stdout, stderr bytes.Buffer
	c := &Cmd{Stdout: &stdout, Stderr: &stderr, Out: t.TempDir()}
	s := &session{cmd: c, tail: portOf(t,
		frame(wire.Stdout, "one "), frame(wire.Stderr, "err"), frame(wire.Stdout, "two"),
		frame(wire.File, "sub/a"), frame(wire.Data, "he"), frame(wire.Data, "llo"), frame(wire.File, "empty"),
		end(t, wire.Result{Code: 3}))}
	if err := s.follow(); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != "one two" || stderr.String() != "err" || s.result.Code != 3 || s.outErr != nil {
		t.Errorf("stdout %q, stderr %q, result %+v, %v", &stdout, &stderr, s.result, s.outErr)
	}
	for name, want := range map[string]string{"sub/a": "hello", "empty": ""} {
		if b, err := os.ReadFile(filepath.Join(c.Out, name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v; want %q", name, b, err, want)
		}
	}
}

func TestFollowRefusesFilesOutside(t *testing.T) {
	dir := t.TempDir()
	c := &Cmd{Out: filepath.Join(dir, "out")}
	s := &session{cmd: c, tail: portOf(t, frame(wire.File, "../evil"), frame(wire.Data, "x"), end(t, wire.Result{}))}
	if err := s.follow(); err != nil {
		t.Fatal(err)
	}
	if s.outErr == nil || !strings.Contains(s.outErr.Error(), "outside") {
		t.Errorf("got %v, want a refusal", s.outErr)
	}
	if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
		t.Error("the file was written")
	}
}

func TestFollowOfCutPort(t *testing.T) {
	for name, frames := range map[string][]byte{
		"in a header":  {byte(wire.Stdout), 0, 0},
		"in a payload": frame(wire.Stdout, "hello")[:7],
		"between":      frame(wire.Stdout, "hello"),
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{cmd: &Cmd{}, tail: portOf(t, frames)}
			err := s.follow()
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || s.result != nil {
				t.Errorf("got %v and result %v, want an end of file and none", err, s.result)
			}
		})
	}
}

func TestFollowOfGarbage(t *testing.T) {
	s := &session{cmd: &Cmd{}, tail: portOf(t, []byte("not a frame at all"))}
	if err := s.follow(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestVerdict(t *testing.T) {
	b := &boot{}
	for name, tc := range map[string]struct {
		result *wire.Result
		o      outcome
		want   func(error) bool
	}{
		"success":          {result: &wire.Result{}, want: func(err error) bool { return err == nil }},
		"exit status":      {result: &wire.Result{Code: 7}, want: is(func(e *ExitError) bool { return e.Code == 7 && e.Signal == 0 })},
		"signal":           {result: &wire.Result{Code: 137, Signal: 9}, want: is(func(e *ExitError) bool { return e.Signal == 9 })},
		"no such command":  {result: &wire.Result{StartError: "no such file"}, want: is(func(e *StartError) bool { return e.Reason == "no such file" })},
		"unreadable out":   {result: &wire.Result{OutError: "denied"}, want: func(err error) bool { return err != nil }},
		"another kernel":   {result: &wire.Result{Release: "5.0"}, want: func(err error) bool { return err != nil }},
		"panic":            {o: outcome{console: "boot\nKernel panic - not syncing: x\n", stream: io.EOF}, want: is(func(e *PanicError) bool { return strings.HasPrefix(e.Console, "Kernel panic") })},
		"stale breakpoint": {o: outcome{console: breakpoint("e9 <cd> 05"), stream: io.EOF}, want: is(func(e *PanicError) bool { return e.IsStaleBreakpoint() })},
		"breakpoint":       {o: outcome{console: breakpoint("cc <cd> 05"), stream: io.EOF}, want: is(func(e *PanicError) bool { return !e.IsStaleBreakpoint() })},
		"panic, timed out": {o: outcome{console: "Kernel panic - not syncing: x", cause: os.ErrDeadlineExceeded}, want: is(func(*PanicError) bool { return true })},
		"timeout":          {o: outcome{console: "a\nb", cause: os.ErrDeadlineExceeded}, want: is(func(e *TimeoutError) bool { return e.Console == "a\nb" && errors.Is(e, os.ErrDeadlineExceeded) })},
		"qemu crashed":     {o: outcome{emulator: "qemu: physmem.c:2678: f: Assertion `a < b' failed.", stream: io.EOF}, want: is(func(e *LostError) bool { return e.IsEmulatorCrash() })},
		"qemu refused":     {o: outcome{emulator: "no such device", stream: io.EOF}, want: is(func(e *LostError) bool { return e.Emulator == "no such device" && !e.IsEmulatorCrash() })},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cmd{}
			if err := b.verdict(c, &session{cmd: c, result: tc.result}, tc.o); !tc.want(err) {
				t.Errorf("got %T: %v", err, err)
			}
		})
	}
}

// breakpoint is the console of a kernel that trapped beside that code.
func breakpoint(code string) string {
	return "Oops: int3: 0000 [#1] SMP NOPTI\n[  1.0] RIP: 0010:__schedule+0x2d9/0xcf0\n[  1.0] Code: 89 45 " + code +
		" 00\nKernel panic - not syncing: x\n"
}

// is tells whether an error is an E for which ok says yes.
func is[E error](ok func(E) bool) func(error) bool {
	return func(err error) bool {
		e, found := errors.AsType[E](err)
		return found && ok(e)
	}
}

// A guest in which a timer is dead says nothing for ever. It is given up before its command
// has begun, and one that was ready in time is not.
func TestGuestThatIsNotReady(t *testing.T) {
	for name, tc := range map[string]struct {
		mode Mode
		says string // what stands in for QEMU writes to the port, by shell
		want func(error) bool
	}{
		"dead timer":    {says: "exec sleep 60", want: is(func(*NotReadyError) bool { return true })},
		"ready in time": {says: `printf 'r\0\0\0\0' >> "$port"; sleep 4; ` + endFrame, want: func(err error) bool { return err == nil }},
		"not asked":     {mode: Deterministic, says: "sleep 4; " + endFrame, want: func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &boot{machine: Machine{Mode: tc.mode}, dir: t.TempDir(), patience: 3 * time.Second}
			var err error
			if b.topology, err = ParseTopology(DefaultTopology); err != nil {
				t.Fatal(err)
			}
			b.qemu = filepath.Join(b.dir, "qemu")
			script := "#!/bin/sh\nport=" + b.port() + "\n" + tc.says + "\n"
			if err := os.WriteFile(b.qemu, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := b.run(t.Context(), &Cmd{}); !tc.want(err) {
				t.Errorf("got %T: %v", err, err)
			}
		})
	}
}

// endFrame is how a guest says that its command succeeded.
const endFrame = `printf 'x\0\0\0\002{}' >> "$port"`
