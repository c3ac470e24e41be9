// SPDX-License-Identifier: Apache-2.0

package spin

import (
	"bytes"
	"context"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestProgramIsAnExecutable(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(Program()))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != elf.EM_X86_64 || f.Type != elf.ET_EXEC || len(f.Progs) != 1 {
		t.Fatalf("machine %v, type %v, %d segments", f.Machine, f.Type, len(f.Progs))
	}
	if p := f.Progs[0]; f.Entry < p.Vaddr || f.Entry >= p.Vaddr+p.Filesz || p.Flags != elf.PF_R|elf.PF_X {
		t.Errorf("entry %#x in a segment at %#x of %d bytes, flags %v", f.Entry, p.Vaddr, p.Filesz, p.Flags)
	}
}

func TestProgramSpinsUntilItIsKilled(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the spinner is an x86-64 program: its guests are")
	}
	path := filepath.Join(t.TempDir(), "spin")
	if err := Install(path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	_ = cmd.Run() // ends by the kill
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v, not by the kill", cmd.ProcessState)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if user := time.Duration(usage.Utime.Nano()); user == 0 {
		t.Errorf("used no CPU in user mode")
	}
}
