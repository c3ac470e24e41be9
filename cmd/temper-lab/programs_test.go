// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make build stamps what go run would ask git for, into temper-lab alone.
func TestMakeStampsTheCommit(t *testing.T) {
	for _, program := range []string{"git", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"} { // a hook's are of another repository
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	do := func(program string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).Output()
		if err != nil {
			t.Fatalf("%s %q: %v", program, args, err)
		}
		return strings.TrimSpace(string(out))
	}
	head := "unknown"
	for _, tc := range []struct{ change, changed string }{
		{"Makefile", ""}, // no repository yet
		{"bench/records/new/records.jsonl", ""},
		{"docs/new.md", ""},
		{"bench/scenarios/new.yaml", "+"},
	} {
		if err := os.MkdirAll(filepath.Dir(tc.change), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(tc.change, makefile, 0o644); err != nil {
			t.Fatal(err)
		}
		want := head + tc.changed
		if got := sourceCommit(); got != want {
			t.Errorf("%s is new: commit %s, want %s", tc.change, got, want)
		}
		stamp := "-ldflags='./cmd/temper-lab=-buildid= -X main.builtOf=" + want + "'"
		if got := do("make", "-n", "build"); !strings.Contains(got, stamp) {
			t.Errorf("%s is new: no %s in %s", tc.change, stamp, got)
		}
		if head == "unknown" {
			do("git", "init", "-q")
			do("git", "add", ".")
			do("git", "-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "-m", "a")
			head = do("git", "rev-parse", "--short=12", "HEAD")
		}
	}
	builtOf = "0123456789ab"
	t.Cleanup(func() { builtOf = "" })
	if got := sourceCommit(); got != builtOf {
		t.Errorf("in another checkout: commit %s, want %s, which was built", got, builtOf)
	}
}
