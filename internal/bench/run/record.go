// SPDX-License-Identifier: Apache-2.0

package run

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/guest"
)

// hear takes one event.
func (r *armRun) hear(e node.Event) error {
	switch {
	case e.Hello != nil:
		r.hello = *e.Hello
		r.sink.tell(Update{Arm: r.arm.Name, Text: "kernel " + e.Hello.Kernel + " is up"})
	case e.Progress != "":
		r.sink.tell(Update{Arm: r.arm.Name, Text: e.Progress})
	case e.Window != nil:
		rec := r.record(e.Window)
		r.held = append(r.held, rec)
		r.sink.tell(Update{Arm: r.arm.Name, Record: &rec})
	}
	return nil
}

// record puts a window together with where it came from, as far as that is
// known while the guest runs.
func (r *armRun) record(w *bench.Window) bench.Record {
	c := r.campaign
	rec := bench.Record{
		Schema: bench.Schema, Scenario: c.Scenario, Arm: r.arm, Seed: c.Seed, Order: r.order, Commit: c.Commit,
		Started: r.started.UTC(), Window: *w,
		Machine: bench.Machine{Kernel: r.hello.Kernel, Cmdline: r.hello.Cmdline, Topology: c.Topology},
		Host:    host(r.started),
	}
	rec.Verdict = bench.Judge(&rec)
	return rec
}

// flush writes the held records with the guest's provenance.
func (r *armRun) flush() error {
	p := r.cmd.Provenance()
	for i := range r.held {
		rec := &r.held[i]
		m := &rec.Machine
		m.KernelPackage = p.KernelPackage + " " + p.KernelVersion
		m.Emulator, m.EmulatorArgs, m.Accel = "QEMU "+p.QEMUVersion, shorten(p.QEMUArgs), p.Accel
		m.Clock, m.ClockNote, m.Packages = clockName(p.Clock), p.ClockNote, p.Packages
		if m.Clock == bench.ClockPerVCPU {
			m.ClockQuantum = clock.Quantum
		}
		if err := rec.Seal(); err != nil {
			return err
		}
		if err := r.sink.keep(rec); err != nil {
			return err
		}
	}
	return nil
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

// host describes the machine this runs on.
func host(started time.Time) bench.Host {
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
