// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/temper-sched/temper/internal/agent/agenttest"
	"github.com/temper-sched/temper/internal/sched/schedtest"
)

const foreignName = "someone"

func tryForeign() (io.Closer, error) { return schedtest.AttachForeign(foreignName) }

// attachForeign has another scheduler run the node until it is closed.
func attachForeign(t *testing.T) io.Closer {
	t.Helper()
	foreign, err := tryForeign()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { foreign.Close() }) // closing twice does no harm
	return foreign
}

// otherBuild is this program with another BPF object in it.
func otherBuild(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	other, err := agenttest.OtherBuild(program)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "temper-agent")
	if err := os.WriteFile(file, other, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}
