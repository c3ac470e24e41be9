// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/guest"
)

// record puts a window together with where it came from, as far as that is
// known while the run goes on.
func (a *attempt) record(w *bench.Window) bench.Record {
	rec := bench.Record{
		Schema: bench.Schema, Campaign: a.name(), Scenario: a.Scenario, Arm: a.arm, Seed: a.seed, Order: a.order,
		Plan: a.plan(), Commit: a.Commit, Started: a.started.UTC(), Build: a.build, Window: *w,
		Machine: bench.Machine{Kernel: a.hello.Kernel, KernelName: a.Kernel, Cmdline: a.hello.Cmdline, Topology: a.Topology},
		Host:    HostOf(a.started),
	}
	rec.Verdict = bench.Judge(&rec)
	return rec
}

// describe adds to m what is known of the machine once it has ended.
func describe(m *bench.Machine, of bench.Machine) {
	kernel, name, cmdline, topology := m.Kernel, m.KernelName, m.Cmdline, m.Topology
	*m = of
	m.Kernel, m.KernelName, m.Cmdline, m.Topology = kernel, name, cmdline, topology
}

// machine describes what j would run on, as far as that is known before it does.
func (c *Campaign) machine(ctx context.Context, j job) (bench.Machine, error) {
	if c.Place == OnHost {
		return c.host()
	}
	cmd, err := c.command(j)
	if err != nil {
		return bench.Machine{}, err
	}
	prov, err := cmd.Describe(ctx)
	if err != nil {
		return bench.Machine{}, err
	}
	m := MachineOf(prov)
	m.Kernel, m.Cmdline, m.Topology = prov.KernelRelease, prov.CommandLine, c.Topology
	return m, nil
}

// host describes this machine, which takes no time.
func (c *Campaign) host() (bench.Machine, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return bench.Machine{}, fmt.Errorf("read kernel release: %w", err)
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return bench.Machine{}, fmt.Errorf("read kernel command line: %w", err)
	}
	m := hostMachine
	m.Cmdline = string(cmdline)
	m.Kernel, m.Topology = unix.ByteSliceToString(name.Release[:]), c.Topology
	return m, nil
}

// MachineOf describes a guest.
func MachineOf(p guest.Provenance) bench.Machine {
	m := bench.Machine{
		KernelPackage: p.KernelPackage + " " + p.KernelVersion,
		Emulator:      "QEMU " + p.QEMUVersion, EmulatorArgs: shorten(p.QEMUArgs), Accel: p.Accel,
		Clock: clockName(p.Clock), ClockNote: p.ClockNote, Packages: p.Packages,
		InitrdSHA256: p.InitrdSHA256, PluginSHA256: p.PluginSHA256,
	}
	if m.Clock == bench.ClockPerVCPU {
		m.ClockQuantum = clock.Quantum
	}
	return m
}

// builds describes the programs that each arm runs, by arm name.
func (c *Campaign) builds() (map[string]bench.Build, error) {
	nodeSum, err := Hash(c.Node)
	if err != nil {
		return nil, err
	}
	out := map[string]bench.Build{}
	for _, arm := range c.Arms {
		b := bench.Build{Go: runtime.Version(), NodeSHA256: nodeSum}
		if arm.Ops == "temper" {
			if b.TemperSHA256, err = Hash(c.Temper); err != nil {
				return nil, err
			}
		}
		if c.Scenario.KindOf().Agent {
			if b.AgentSHA256, err = Hash(c.Agent); err != nil {
				return nil, err
			}
		}
		out[arm.Name] = b
	}
	return out, nil
}

// Hash is the SHA-256 of a file.
func Hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hash file: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("hash file: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Describe completes an exec arm with what identifies its program: the file at
// e.Path, its arguments, and the configuration in e.Config if there is one.
func Describe(e *bench.Exec) (err error) {
	if e.SHA256, err = Hash(e.Path); err != nil {
		return err
	}
	if e.Config != "" {
		e.ConfigSHA256, err = Hash(e.Config)
	}
	return err
}

func clockName(guestClock string) string {
	switch guestClock {
	case guest.ClockPerVCPU:
		return bench.ClockPerVCPU
	case guest.ClockICount:
		return bench.ClockShared
	}
	return bench.ClockHost
}

// shorten replaces absolute paths by their last element: where this machine
// keeps its files is nobody's business and changes no figure.
func shorten(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		parts := strings.Split(arg, ",")
		for j, part := range parts {
			key, value, ok := strings.Cut(part, "=")
			if !ok {
				key, value = "", part
			} else {
				key += "="
			}
			if filepath.IsAbs(value) {
				parts[j] = key + filepath.Base(value)
			}
		}
		out[i] = strings.Join(parts, ",")
	}
	return out
}

// HostOf describes the machine this runs on, and how long ago started was.
func HostOf(started time.Time) bench.Host {
	h := bench.Host{CPU: runtime.GOARCH, CPUs: runtime.NumCPU(), WallSec: time.Since(started).Round(100 * time.Millisecond).Seconds()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		h.CPU = cpuModel(string(text), h.CPU)
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		h.Load1, _ = strconv.ParseFloat(first, 64)
	}
	return h
}

// cpuModel finds the processor's name, or returns fallback.
func cpuModel(cpuinfo, fallback string) string {
	for line := range strings.Lines(cpuinfo) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return fallback
}
