// SPDX-License-Identifier: Apache-2.0

package run

import (
	"os"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

func TestCheckHostNamesAllThatIsMissing(t *testing.T) {
	c := campaign(t)
	files := map[string]string{
		"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io\n", "/proc/schedstat": "version 17\n", "/sys/kernel/btf/vmlinux": "x",
		"/sys/kernel/sched_ext/state": "disabled\n", "/proc/cmdline": "quiet\n",
	}
	facts := func() hostFacts {
		return hostFacts{
			root: true, program: func(string) error { return nil },
			read: func(path string) (string, error) {
				text, ok := files[path]
				if !ok {
					return "", os.ErrNotExist
				}
				return text, nil
			},
		}
	}
	fits := []bench.Arm{c.Arms[0], c.Arms[3]}
	if err := checkHost(c.Scenario, fits, facts()); err != nil {
		t.Fatalf("a machine that has everything: %v", err)
	}
	if err := checkHost(c.Scenario, c.Arms, facts()); err == nil || !strings.Contains(err.Error(), "preempt=full on the kernel's command line: arm eevdf-tuned") {
		t.Errorf("error %v", err)
	}
	files["/proc/cmdline"] = "quiet preempt=full\n"
	tuned, err := bench.ParseArm("eevdf-tuned:again")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkHost(c.Scenario, []bench.Arm{tuned}, facts()); err != nil {
		t.Errorf("the arm whose word it is: %v", err)
	}
	for _, arm := range fits {
		want := "without preempt=full: arm " + arm.Name + " must not have it; reboot without it, or leave this arm out"
		if err := checkHost(c.Scenario, fits, facts()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	files["/proc/cmdline"] = "quiet\n"
	files["/sys/kernel/sched_ext/state"] = "enabled\n"
	if err := checkHost(c.Scenario, fits, facts()); err == nil || !strings.Contains(err.Error(), "its state is enabled") {
		t.Errorf("error %v", err)
	}
	bare := hostFacts{
		read:    func(string) (string, error) { return "", os.ErrNotExist },
		program: func(string) error { return os.ErrNotExist },
	}
	err = checkHost(c.Scenario, fits, bare)
	for _, want := range []string{"root:", "cgroup v2", "schedstat", "btf", "sched_ext: temper need", "program memcached: apt install memcached"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	files["/sys/fs/cgroup/cgroup.controllers"] = "cpu io\n"
	if err := checkHost(c.Scenario, fits[:1], facts()); err == nil || !strings.Contains(err.Error(), "controller cpuset") {
		t.Errorf("error %v", err)
	}
}

func TestEveryPackageHasItsProgram(t *testing.T) {
	for _, k := range bench.Kinds() {
		s := bench.Scenario{Primary: bench.Primary{Kind: k.Name}, Background: []string{"fork"}}
		for _, pkg := range s.Packages() {
			if programs[pkg] == "" {
				t.Errorf("%s: --on host does not know by which program to tell that %s is there", k.Name, pkg)
			}
		}
	}
}
