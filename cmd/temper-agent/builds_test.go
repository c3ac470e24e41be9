// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

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

// otherBuild is this program with another BPF object in it: of each, a byte of
// the header that nobody reads is changed.
func otherBuild(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	// An ELF file for 64 bits, little endian, version 1; type relocatable and
	// machine BPF follow the padding.
	head, machine := []byte("\x7fELF\x02\x01\x01\x00"), []byte("\x01\x00\xf7\x00")
	const padding, types = 9, 16
	found := 0
	for at := 0; ; at++ {
		next := bytes.Index(program[at:], head)
		if next < 0 {
			break
		}
		at += next
		if bytes.HasPrefix(program[min(at+types, len(program)):], machine) {
			program[at+padding] ^= 1
			found++
		}
	}
	if found == 0 {
		t.Fatal("no BPF object in this program")
	}
	file := filepath.Join(t.TempDir(), "temper-agent")
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}
