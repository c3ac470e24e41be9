// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/guest"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{
		"-kernel", "6.18", "-topology", "2s2c1t", "-mode", "deterministic", "-packages", "memcached,stress-ng",
		"-append", "preempt=full nosmt", "/bin/sh", "-c", "exit 3",
	})
	if err != nil {
		t.Fatal(err)
	}
	m := o.machine
	if m.Kernel != "6.18" || m.Topology != "2s2c1t" || m.Mode != guest.Deterministic {
		t.Errorf("machine is %+v", m)
	}
	if !slices.Equal(m.Packages, []string{"memcached", "stress-ng"}) || !slices.Equal(m.Append, []string{"preempt=full", "nosmt"}) {
		t.Errorf("packages %q, kernel words %q", m.Packages, m.Append)
	}
	if want := []string{"/bin/sh", "-c", "exit 3"}; !slices.Equal(o.args, want) {
		t.Errorf("command is %q, want %q", o.args, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no command":   {"-kernel", "7.2"},
		"unknown mode": {"-mode", "fast", "/bin/true"},
		"topology":     {"-topology", "4", "/bin/true"},
		"real time":    {"-trace", "/tmp/t", "/bin/true"},
		"no trace":     {"-mode", "deterministic", "-waits", "memcached", "/bin/true"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(args); err == nil || errors.Is(err, flag.ErrHelp) {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}

// A test binary goes along with its testdata, and what go test wants to be
// written on this host is left out.
func TestCommandOfTestBinary(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "sched.test")
	if err := errors.Join(os.WriteFile(bin, nil, 0o755), os.Mkdir(filepath.Join(dir, "testdata"), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("TEMPER_EXPECT", "NoSchedExt")
	t.Setenv("REQUIRE_ALL", "1")
	o, err := parse([]string{"-mode", "deterministic", bin, "-test.testlogfile=/tmp/x", "-test.run=A", "-test.gocoverdir=/y"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.command(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/test/sched.test", "-test.run=A"}; c.Path != want[0] || !slices.Equal(c.Args, want) || c.Dir != "/test" {
		t.Errorf("runs %s %q in %s", c.Path, c.Args, c.Dir)
	}
	if c.Machine.Files["/test/sched.test"] != bin || c.Machine.Files["/test/testdata"] != "testdata" {
		t.Errorf("takes along %v", c.Machine.Files)
	}
	for _, want := range []string{"TEMPER_EXPECT=NoSchedExt", "REQUIRE_ALL=1", "TEMPER_VIRTUAL_TIME=1"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("environment %q lacks %s", c.Env, want)
		}
	}
	if slices.ContainsFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		t.Error("the host's HOME is passed")
	}
}

func TestCommandOfTheGuest(t *testing.T) {
	o, err := parse([]string{"-copy", "/a:/b", "/bin/sh", "-c", "true"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.command(nil)
	if err != nil || c.Path != "/bin/sh" || len(c.Machine.Files) != 1 || c.Machine.Files["/b"] != "/a" {
		t.Errorf("runs %s with %v, %v", c.Path, c.Machine.Files, err)
	}
	o.copies = []string{"a"}
	if _, err := o.command(nil); err == nil {
		t.Error("a copy without a place in the guest is accepted")
	}
}

func TestStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"success": {nil, 0},
		"exit":    {fmt.Errorf("run: %w", &guest.ExitError{Code: 7}), 7},
		"killed":  {&guest.ExitError{Code: 137, Signal: 9}, 137},
		"panic":   {&guest.PanicError{}, exitInfra},
	} {
		if got := status(tc.err); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
