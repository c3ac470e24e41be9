// SPDX-License-Identifier: Apache-2.0

package clock_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/guest"
)

// What a vCPU does beside three busy ones, relative to one that is alone. The
// kernel's ticks and background threads cost it some; a shared clock costs it
// half and more. README.md has what was measured.
const (
	ownLoopsMin    = 0.97
	ownDelayMax    = 1.05
	sharedLoopsMax = 0.70
	sharedDelayMin = 1.20
)

var quantum = flag.Duration("quantum", clock.Quantum, "quantum of the clocks that guests run on")

// ownClock is clock.Plugin with the quantum asked for.
func ownClock(ctx context.Context, qemuPath, version string) (string, error) {
	path, err := clock.Plugin(ctx, qemuPath, version)
	return fmt.Sprintf("%s,quantum=%d", path, quantum.Nanoseconds()), err
}

// awakeClock is ownClock in a QEMU whose threads come between each other as often as they
// can.
func awakeClock(dir string) guest.ClockFunc {
	return func(ctx context.Context, _, version string) (string, error) {
		path := filepath.Join(dir, "awake.so")
		err := clock.BuildPlugin(ctx, version, "plugin/testdata/awake.c", path)
		return fmt.Sprintf("%s,quantum=%d", path, quantum.Nanoseconds()), err
	}
}

// result is what testdata/busy printed: loops of each vCPU by the number of busy
// ones, and the p50 delay of a timer's wake beside that many.
type result struct {
	loops  map[int][]float64
	delay  map[int]float64
	output string
}

func (r result) slowest(busy int) float64 { return slices.Min(r.loops[busy]) / r.loops[1][0] }
func (r result) later() float64           { return r.delay[3] / r.delay[0] }

// busyGuest runs testdata/busy in a guest of four vCPUs.
func busyGuest(t *testing.T, program string, plugin guest.ClockFunc) result {
	t.Helper()
	c := guest.Command(guest.Machine{
		Mode: guest.Deterministic, Clock: plugin, Seed: 1,
		Files: map[string]string{"/busy": program},
	}, "/busy")
	var out, diag strings.Builder
	c.Stdout, c.Stderr = &out, &diag
	if err := c.Run(t.Context()); err != nil {
		t.Errorf("run busy: %v\n%s", err, diag.String())
		return result{}
	}
	t.Logf("clock %s:\n%s", c.Provenance().Clock, out.String())
	return parse(t, out.String())
}

func parse(t *testing.T, output string) result {
	t.Helper()
	r := result{loops: map[int][]float64{}, delay: map[int]float64{}, output: output}
	for line := range strings.Lines(output) {
		what, rest, _ := strings.Cut(line, " ")
		var values []float64
		for field := range strings.FieldsSeq(rest) {
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Errorf("busy printed %q: %v", line, err)
			}
			values = append(values, n)
		}
		if len(values) < 2 {
			t.Errorf("busy printed %q", line)
			continue
		}
		switch busy := int(values[0]); what {
		case "loops":
			r.loops[busy] = values[1:]
		case "wakes":
			r.delay[busy] = values[1]
		}
	}
	if len(r.loops) != 3 || len(r.delay) != 2 {
		t.Errorf("busy printed %d and %d steps, want 3 and 2:\n%s", len(r.loops), len(r.delay), output)
	}
	return r
}

func buildBusy(t *testing.T) string {
	t.Helper()
	if os.Getenv("REQUIRE_ALL") != "1" {
		t.Skip("boots guests; set REQUIRE_ALL=1 to run it")
	}
	program := filepath.Join(t.TempDir(), "busy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/busy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build testdata/busy: %v\n%s", err, out)
	}
	return program
}

// Two guests at the same time disturb each other's thread, but not a value; nor does a
// host that stalls one of them thousands of times while its main loop is awake.
func TestLinuxSeesAClockPerVCPU(t *testing.T) {
	program := buildBusy(t)
	var runs [2]result
	var wg sync.WaitGroup
	for i, plugin := range []guest.ClockFunc{ownClock, awakeClock(t.TempDir())} {
		wg.Go(func() { runs[i] = busyGuest(t, program, plugin) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if runs[0].output != runs[1].output {
		t.Error("two runs differ")
	}
	for _, busy := range []int{2, 4} {
		if got := runs[0].slowest(busy); got < ownLoopsMin {
			t.Errorf("with %d busy vCPUs one does %.3f of what it does alone, want %v at least", busy, got, ownLoopsMin)
		}
	}
	if got := runs[0].later(); got > ownDelayMax {
		t.Errorf("beside 3 busy vCPUs a timer's wake is %.3f times as late, want %v at most", got, ownDelayMax)
	}
}

// Without the plugin the same measures show the clock, not the kernel: if they
// did not, the test above would prove nothing.
func TestLinuxSlowsDownOnASharedClock(t *testing.T) {
	run := busyGuest(t, buildBusy(t), nil)
	if t.Failed() {
		return
	}
	for _, busy := range []int{2, 4} {
		if got := run.slowest(busy); got > sharedLoopsMax {
			t.Errorf("with %d busy vCPUs one does %.3f of what it does alone, expected %v at most", busy, got, sharedLoopsMax)
		}
	}
	if got := run.later(); got < sharedDelayMin {
		t.Errorf("beside 3 busy vCPUs a timer's wake is %.3f times as late, expected %v at least", got, sharedDelayMin)
	}
}
