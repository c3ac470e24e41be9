// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// The arithmetic of limits, driven by a model of threads that compute, sleep
// and overrun their grants, while limits change and clocks differ: never more
// than the bound, no wait that those before do not explain, no token lost while
// somebody waits.
func TestBucketModel(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	model := filepath.Join(t.TempDir(), "bucket_model")
	build := exec.Command(cc, "-O2", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined,address",
		"-fno-sanitize-recover=all", "-I", "../../bpf", "-o", model, "testdata/bucket_model.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compile model: %v\n%s", err, out)
	}
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
