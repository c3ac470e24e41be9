// SPDX-License-Identifier: Apache-2.0

package clock_test

import (
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

// Loops of a vCPU beside three busy ones, relative to one that is alone. The
// kernel's ticks and background threads cost it some; a shared clock costs it
// half and more. README.md has what was measured.
const (
	ownClockMin    = 0.98
	sharedClockMax = 0.70
)

// busyLoops runs testdata/busy in a guest of four vCPUs: loops by step and vCPU.
func busyLoops(t *testing.T, program string, plugin guest.ClockFunc) (steps [][]float64, output string) {
	t.Helper()
	c := guest.Command(guest.Machine{
		Mode: guest.Deterministic, Clock: plugin, Seed: 1,
		Files: map[string]string{"/busy": program},
	}, "/busy")
	var out, diag strings.Builder
	c.Stdout, c.Stderr = &out, &diag
	if err := c.Run(t.Context()); err != nil {
		t.Errorf("run busy loops: %v\n%s", err, diag.String())
		return nil, ""
	}
	for line := range strings.Lines(out.String()) {
		var loops []float64
		for _, field := range strings.Fields(line)[3:] {
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Errorf("busy printed %q: %v", line, err)
			}
			loops = append(loops, n)
		}
		steps = append(steps, loops)
	}
	if len(steps) != 3 {
		t.Errorf("busy printed %d steps, want 3:\n%s", len(steps), out.String())
		return nil, ""
	}
	t.Logf("clock %s:\n%s", c.Provenance().Clock, out.String())
	return steps, out.String()
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

// Two guests at the same time disturb each other's vCPU thread but not a value.
func TestLinuxSeesAClockPerVCPU(t *testing.T) {
	program := buildBusy(t)
	var steps [2][][]float64
	var outputs [2]string
	var wg sync.WaitGroup
	for i := range outputs {
		wg.Go(func() { steps[i], outputs[i] = busyLoops(t, program, clock.Plugin) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if outputs[0] != outputs[1] {
		t.Error("two runs differ")
	}
	alone := steps[0][0][0]
	for _, loops := range steps[0] {
		if got := slices.Min(loops) / alone; got < ownClockMin {
			t.Errorf("with %d busy vCPUs one does %.3f of what it does alone, want %v at least", len(loops), got, ownClockMin)
		}
	}
}

func TestLinuxSlowsDownOnASharedClock(t *testing.T) {
	steps, _ := busyLoops(t, buildBusy(t), nil)
	if t.Failed() {
		return
	}
	alone := steps[0][0]
	for _, loops := range steps[1:] {
		if got := slices.Min(loops) / alone; got > sharedClockMax {
			t.Errorf("with %d busy vCPUs one does %.3f of what it does alone: the test's premise is wrong", len(loops), got)
		}
	}
}
