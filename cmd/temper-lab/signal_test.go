// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// reading starts the command on a record file that has no end yet, and returns
// once it reads it.
func reading(t *testing.T, command string) (cmd *exec.Cmd, records *os.File) {
	t.Helper()
	pipe := filepath.Join(t.TempDir(), "records")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("temper-lab", command, pipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	records, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the reader
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	return cmd, records
}

func signaled(cmd *exec.Cmd) bool {
	_ = cmd.Wait() // how it ended is in its state
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// What boots no guest ends at once: it went on for a minute, and said that all was done.
func TestASignalEndsWhatReadsRecords(t *testing.T) {
	cmd, _ := reading(t, "verify")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if !signaled(cmd) {
		t.Errorf("verify ended by itself: %v", cmd.ProcessState)
	}
}

// A second signal left the guests' files, 38 MB each: what boots guests ends by itself.
func TestNoSignalKillsWhatBootsGuests(t *testing.T) {
	cmd, records := reading(t, "rerun")
	for range 100 {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		for pending(t, cmd.Process.Pid) {
		}
	}
	records.Close()
	if signaled(cmd) || cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("rerun: %v, want exit code %d of its own", cmd.ProcessState, exitError)
	}
}

// pending says whether a signal to the process waits to be taken.
func pending(t *testing.T, pid int) bool {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(string(status), "ShdPnd:\t0000000000000000")
}
