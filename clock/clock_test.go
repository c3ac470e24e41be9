// SPDX-License-Identifier: Apache-2.0

package clock_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/guest"
)

// sharedClock is plain instruction counting as the laboratory falls back to it:
// a timer every 20 µs makes the vCPUs take turns.
var sharedClock = []string{
	"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off",
	"-netdev", "hubport,id=net,hubid=9",
	"-object", "filter-buffer,id=turns,netdev=net,interval=20",
}

// qemu returns the QEMU that guests run in. Without a compiler or a QEMU the
// test is skipped, or fails where everything is required.
func qemu(t *testing.T) (path, version string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		skip(t, clock.ErrNoCompiler)
	}
	path, version, err := guest.QEMU(t.Context())
	if err != nil {
		skip(t, err)
	}
	return path, version
}

func skip(t *testing.T, reason error) {
	t.Helper()
	if os.Getenv("REQUIRE_ALL") == "1" {
		t.Fatalf("cannot run, and REQUIRE_ALL=1: %v", reason)
	}
	t.Skip(reason)
}

// plugin returns the plugin built for the guests' QEMU.
func plugin(t *testing.T) (path, qemuPath, version string) {
	t.Helper()
	qemuPath, version = qemu(t)
	path, err := clock.Plugin(t.Context(), qemuPath, version)
	if err != nil {
		t.Fatal(err)
	}
	return path, qemuPath, version
}

func TestPluginIsCheckedOnce(t *testing.T) {
	path, qemuPath, version := plugin(t)
	verdicts, err := filepath.Glob(filepath.Join(filepath.Dir(path), "verdict-*.json"))
	if err != nil || len(verdicts) == 0 {
		t.Fatalf("no verdict beside %s: %v", path, err)
	}
	before, err := os.Stat(verdicts[0])
	if err != nil {
		t.Fatal(err)
	}
	again, err := clock.Plugin(t.Context(), qemuPath, version)
	if err != nil || again != path {
		t.Fatalf("second call: %s, %v; want %s", again, err, path)
	}
	after, err := os.Stat(verdicts[0])
	if err != nil {
		t.Fatal(err)
	}
	if !after.ModTime().Equal(before.ModTime()) {
		t.Error("second call ran the self-check again")
	}
}

func TestPluginPassesSelfCheck(t *testing.T) {
	path, qemuPath, version := plugin(t)
	reason, _, err := clock.Check(t.Context(), qemuPath, version, clock.ClockArgs(path))
	if err != nil || reason != "" {
		t.Errorf("self-check: %s, %v", reason, err)
	}
}

// Threads of QEMU interrupt vCPUs now and then. That must not end a turn: the answers
// are those of an undisturbed guest, to the last nanosecond.
func TestOtherThreadsDoNotMoveTheClock(t *testing.T) {
	path, qemuPath, version := plugin(t)
	disturb := filepath.Join(t.TempDir(), "disturb.so")
	if err := clock.BuildPlugin(t.Context(), version, "plugin/testdata/disturb.c", disturb); err != nil {
		t.Fatal(err)
	}
	want, err := clock.Answers(t.Context(), qemuPath, version, clock.ClockArgs(path))
	if err != nil {
		t.Fatalf("self-check: %v", err)
	}
	for range 5 {
		got, err := clock.Answers(t.Context(), qemuPath, version, append(clock.ClockArgs(path), "-plugin", disturb))
		if err != nil {
			t.Fatalf("self-check beside a thread that interrupts: %v", err)
		}
		if got != want {
			t.Fatalf("a thread that interrupts moved the clock: it says\n%s\nundisturbed\n%s", got, want)
		}
	}
}

// Whoever looks changes nothing: with a trace of what it does the guest gives the same
// answers, to the last nanosecond.
func TestTraceDoesNotMoveTheClock(t *testing.T) {
	path, qemuPath, version := plugin(t)
	tracer, err := clock.Tracer(t.Context(), qemuPath, version)
	if errors.Is(err, clock.ErrUnsupported) {
		t.Skip(err) // a QEMU newer than the guests' own
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := clock.Answers(t.Context(), qemuPath, version, clock.ClockArgs(path))
	if err != nil {
		t.Fatalf("self-check: %v", err)
	}
	dir := t.TempDir()
	points, trace := filepath.Join(dir, "points"), filepath.Join(dir, "trace")
	// The processor's first instruction, which has no task.
	if err := os.WriteFile(points, []byte("out "+trace+"\ntask 0 4 8\nat fffffff0 1 reset\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := clock.Answers(t.Context(), qemuPath, version, clock.ClockArgs(tracer+",trace="+points))
	if err != nil {
		t.Fatalf("self-check with a trace: %v", err)
	}
	if got != want {
		t.Errorf("with a trace the guest says\n%s\nwithout\n%s", got, want)
	}
	calls, err := os.ReadFile(trace)
	if err != nil || !strings.HasPrefix(string(calls), "0 0 reset\t") {
		t.Errorf("trace %q, %v; want the first vCPU's reset at 0", calls, err)
	}
}

func TestTracerRefusesInOneLine(t *testing.T) {
	_, qemuPath, version := plugin(t)
	tracer, err := clock.Tracer(t.Context(), qemuPath, version)
	if errors.Is(err, clock.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "points")
	if err := os.WriteFile(bad, []byte("at nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{
		"":                "trace: want trace=FILE",
		",trace=/nowhere": "trace: want trace=FILE",
		",trace=" + bad:   "trace: " + bad + ": at nowhere",
	} {
		args := append(clock.ClockArgs(tracer+option), "-nodefaults", "-display", "none", "-smp", "2", "-m", "16")
		out, err := exec.CommandContext(t.Context(), qemuPath, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("QEMU with %q ended with %v and printed\n%swant %q", option, err, out, want)
		}
	}
}

func TestSelfCheckNoticesASharedClock(t *testing.T) {
	qemuPath, version := qemu(t)
	reason, _, err := clock.Check(t.Context(), qemuPath, version, sharedClock)
	if err != nil {
		t.Fatal(err)
	}
	var beside int
	if _, err := fmt.Sscanf(reason, "beside_busy_ns is %d,", &beside); err != nil {
		t.Fatalf("self-check without the plugin: %q, want a wrong beside_busy_ns", reason)
	}
	// Not exactly twice: of each turn the first vCPU gets the larger part.
	if beside < 3_000_000 || beside > 5_000_000 {
		t.Errorf("a loop of 2 ms beside a busy vCPU took %d ns of the shared clock, want 3 to 5 ms", beside)
	}
}

func TestSelfCheckNoticesACoarseClock(t *testing.T) {
	path, qemuPath, version := plugin(t)
	for option, want := range map[string]string{
		",quantum=20000": "to_",
		",pause=0":       "pauses_ns is ",
	} {
		reason, _, err := clock.Check(t.Context(), qemuPath, version, clock.ClockArgs(path+option))
		if err != nil || !strings.HasPrefix(reason, want) {
			t.Errorf("self-check with %s: %q, %v; want %s…", option, reason, err, want)
		}
	}
}

func TestPluginRefusesInOneLine(t *testing.T) {
	path, qemuPath, _ := plugin(t)
	unknown := "clock: accelerator table not recognised: needs -accel tcg,thread=single -icount shift=N"
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"several threads": {[]string{"-accel", "tcg,thread=multi", "-plugin", path}, unknown},
		"no icount":       {[]string{"-accel", "tcg,thread=single", "-plugin", path}, unknown},
		"unknown option": {
			clock.ClockArgs(path + ",quantum=soon"),
			"clock: option quantum=soon: want quantum=NS, pause=NS or stats=on",
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(tt.args, "-nodefaults", "-display", "none", "-smp", "2", "-m", "16")
			out, err := exec.CommandContext(t.Context(), qemuPath, args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() == 0 {
				t.Fatalf("QEMU ended with %v, want a failure", err)
			}
			if n := strings.Count(string(out), "clock: "); n != 1 || !strings.Contains(string(out), tt.want+"\n") {
				t.Errorf("QEMU printed\n%swant one line %q", out, tt.want)
			}
		})
	}
}

func TestOldQEMUIsUnsupported(t *testing.T) {
	for _, version := range []string{"7.2.11", "QEMU emulator version 9.0.4", "", "unknown"} {
		if _, err := clock.Plugin(t.Context(), "/does/not/exist", version); !errors.Is(err, clock.ErrUnsupported) {
			t.Errorf("Plugin for QEMU %q: %v, want %v", version, err, clock.ErrUnsupported)
		}
	}
}

// TestBadQEMU gives Plugin programs that are not a QEMU with a working plugin.
func TestBadQEMU(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		skip(t, clock.ErrNoCompiler)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for name, tt := range map[string]struct {
		script string
		want   error
		text   string
	}{
		"answers differ between runs": {"echo digest $$; exit 85", clock.ErrSelfCheck, "two runs differ"},
		"an answer is missing":        {"echo alone_ns 2000003; exit 85", clock.ErrSelfCheck, "beside_busy_ns is missing"},
		"not an answer":               {"echo hello; exit 85", clock.ErrSelfCheck, `line "hello" is not an answer`},
		"refuses the plugin":          {"echo clock: no >&2; exit 1", clock.ErrUnsupported, "clock: no"},
		"says nothing":                {"exit 3", clock.ErrUnsupported, "exit status 3"},
		"ends too early":              {"exit 0", clock.ErrUnsupported, "ended without an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "qemu")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, attempt := range []string{"first", "cached"} {
				_, err := clock.Plugin(t.Context(), path, "10.0.2")
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%s: %v, want %v with %q", attempt, err, tt.want, tt.text)
				}
			}
		})
	}
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := clock.Plugin(t.Context(), "/does/not/exist", "10.0.2"); !errors.Is(err, clock.ErrNoCompiler) {
		t.Errorf("Plugin without gcc: %v, want %v", err, clock.ErrNoCompiler)
	}
}

func TestQuantumIsThePluginsDefault(t *testing.T) {
	source, err := os.ReadFile("plugin/clock.c")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("static int64_t quantum_ns = %d;", clock.Quantum/time.Nanosecond)
	if !strings.Contains(string(source), want) {
		t.Errorf("plugin/clock.c has no line %q: Quantum is not its default", want)
	}
}
