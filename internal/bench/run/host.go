// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/topology"
)

// HostRoot is the cgroup below which everything is measured on a machine that
// has other work too. It is removed afterwards.
const HostRoot = "/temper-lab"

// hostMachine is what is known of this machine without asking it.
var hostMachine = bench.Machine{Clock: bench.ClockHost, ClockNote: "measured on the machine itself: whatever else ran on it is in the figures"}

// onHost runs the ladder on this machine.
func (a *attempt) onHost(ctx context.Context) (bench.Machine, error) {
	machine := hostMachine
	spec := node.Spec{Scenario: a.Scenario, Arm: a.arm, Seed: a.seed, Temper: a.Temper, Root: HostRoot}
	cpus, err := topology.Read(os.DirFS(topology.Root))
	if err != nil {
		return machine, err
	}
	spec.CPUs = len(cpus.Online())
	if e := a.arm.Exec; e != nil {
		spec.Exec, spec.ExecConfig = e.Path, e.Config
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return machine, fmt.Errorf("encode run: %w", err)
	}
	cmd := exec.CommandContext(ctx, a.Node, "run")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin = bytes.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return machine, fmt.Errorf("start %s: %w", a.Node, err)
	}
	a.tell(Update{Arm: a.arm.Name, Seed: a.seed, Text: "measuring this machine"})
	if err := cmd.Start(); err != nil {
		return machine, fmt.Errorf("start %s: %w", a.Node, err)
	}
	err = a.listen(out)
	if err != nil {
		_, _ = io.Copy(io.Discard, out) // it must not wait for a reader
	}
	if err = errors.Join(err, cmd.Wait(), cleanHost()); err != nil {
		err = fmt.Errorf("%w%s", err, tail(stderr.String()))
	}
	return machine, err
}

// HostTopology names this machine's CPUs as scenarios do, "1s4c2t".
func HostTopology() (string, error) {
	t, err := topology.Read(os.DirFS(topology.Root))
	if err != nil {
		return "", err
	}
	packages := map[string]bool{}
	for _, cpu := range t.Online() {
		text, err := os.ReadFile(fmt.Sprintf("%s/cpu/cpu%d/topology/physical_package_id", topology.Root, cpu))
		if err != nil {
			return "", fmt.Errorf("read package of CPU %d: %w", cpu, err)
		}
		packages[strings.TrimSpace(string(text))] = true
	}
	sockets, cores, threads := len(packages), len(t.Cores()), len(t.Online())
	if cores%sockets != 0 || threads%cores != 0 {
		return "", fmt.Errorf("name topology: %d sockets, %d cores and %d CPUs are not even", sockets, cores, threads)
	}
	return topology.Shape{Sockets: sockets, Cores: cores / sockets, Threads: threads / cores}.String(), nil
}

// host is what a measured machine must have, by the files that tell.
type hostFacts struct {
	root    bool
	read    func(path string) (string, error)
	program func(name string) error
}

// CheckHost says whether this machine can be measured under arms; the error
// names everything that is missing.
func CheckHost(scenario bench.Scenario, arms []bench.Arm) error {
	return checkHost(scenario, arms, hostFacts{
		root:    os.Geteuid() == 0,
		read:    func(path string) (string, error) { text, err := os.ReadFile(path); return string(text), err },
		program: func(name string) error { _, err := exec.LookPath(name); return err },
	})
}

func checkHost(scenario bench.Scenario, arms []bench.Arm, host hostFacts) error {
	var missing []error
	miss := func(format string, args ...any) { missing = append(missing, fmt.Errorf(format, args...)) }
	if scenario.KindOf().Agent {
		miss("a guest: %s has its agent end and its scheduler ejected", scenario.Name)
	}
	if !host.root {
		miss("root: the node's cgroups and schedulers need it (sudo temper-lab …)")
	}
	controllers, err := host.read("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		miss("cgroup v2 on /sys/fs/cgroup: boot with systemd.unified_cgroup_hierarchy=1")
	} else {
		for _, want := range []string{"cpu", "cpuset"} {
			if !slices.Contains(strings.Fields(controllers), want) {
				miss("cgroup controller %s in /sys/fs/cgroup/cgroup.controllers: it has %s", want, strings.TrimSpace(controllers))
			}
		}
	}
	if _, err := host.read("/proc/schedstat"); err != nil {
		miss("/proc/schedstat: a kernel with CONFIG_SCHEDSTATS")
	}
	if _, err := host.read("/sys/kernel/btf/vmlinux"); err != nil {
		miss("/sys/kernel/btf/vmlinux: a kernel with CONFIG_DEBUG_INFO_BTF, for the probe")
	}
	state, err := host.read("/sys/kernel/sched_ext/state")
	cmdline, _ := host.read("/proc/cmdline")
	words := strings.Fields(cmdline)
	var scheduled []string
	for _, arm := range arms {
		if arm.Scheduled() {
			scheduled = append(scheduled, arm.Name)
		}
		for _, of := range bench.Arms() {
			for _, word := range of.Cmdline {
				switch has, wants := slices.Contains(words, word), slices.Contains(arm.Cmdline, word); {
				case wants && !has:
					miss("%s on the kernel's command line: arm %s needs it, and no other arm may have it; reboot between them", word, arm.Name)
				case has && !wants:
					miss("a kernel's command line without %s: arm %s must not have it; reboot without it, or leave this arm out", word, arm.Name)
				}
			}
		}
	}
	if err != nil && len(scheduled) > 0 {
		miss("/sys/kernel/sched_ext: %s need a kernel 6.16 or newer with CONFIG_SCHED_CLASS_EXT", strings.Join(scheduled, ", "))
	}
	if live := strings.TrimSpace(state); err == nil && live != "disabled" {
		miss("a free sched_ext: its state is %s; stop the scheduler that runs (temper stop)", live)
	}
	for _, pkg := range scenario.Packages() {
		if program := programs[pkg]; host.program(program) != nil {
			miss("program %s: apt install %s", program, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("measure this machine: missing are\n%w", errors.Join(missing...))
}

// programs are what a Debian package is needed for.
var programs = map[string]string{
	"mariadb-server-core": "/usr/sbin/mariadbd",
	"memcached":           "memcached",
	"postgresql-17":       "/usr/lib/postgresql/17/bin/postgres",
	"redis-server":        "redis-server",
	"rt-tests":            "hackbench",
	"stress-ng":           "stress-ng",
	"sysbench":            "sysbench",
}

// cleanHost removes the cgroups that a run on this machine left.
func cleanHost() error {
	root := "/sys/fs/cgroup" + HostRoot
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}
