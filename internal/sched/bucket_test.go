// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// modelOf compiles a model of the pacer.
func modelOf(t *testing.T, source string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	model := filepath.Join(t.TempDir(), "model")
	build := exec.Command(cc, "-O2", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined,address",
		"-fno-sanitize-recover=all", "-I", "../../bpf", "-o", model, filepath.Join("testdata", source))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compile model: %v\n%s", err, out)
	}
	return model
}

// What chance does not draw: time that is charged to nobody, a thread that never stops
// owing, a suspend.
func TestPacerCases(t *testing.T) {
	out, err := exec.Command(modelOf(t, "pace_cases.c")).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// The pacer itself, driven by a model of a machine: threads that compute, sleep,
// overrun their grants and wait for CPUs, below limits above one another that
// change, with clocks that differ. Never more than the bound, no wait beyond its
// bound, no stop while a grant is there, no token lost while somebody waits and
// all grants are run on, and sums that are those of the threads.
func TestBucketModel(t *testing.T) {
	model := modelOf(t, "pace_model.c")
	events := 3_000_000
	if testing.Short() {
		events = 100_000
	}
	for seed := 1; seed <= 4; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(model, strconv.Itoa(seed), strconv.Itoa(events)).CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
		})
	}
}
