// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/temper-sched/temper/internal/guest"
	"github.com/temper-sched/temper/internal/sched"
)

// function is one of the kernel's, and how many of its first arguments are tasks.
type function struct {
	name  string
	tasks int
}

const (
	functionWake   = "try_to_wake_up"
	functionSwitch = "__switch_to"
)

// functions are what is traced: who wakes whom, who follows whom, and what may come
// between. A kernel without one of the later ones is traced without it.
var functions = []function{
	{functionWake, 1},
	{functionSwitch, 2},
	{"resched_curr", 0},
	{"scx_bpf_kick_cpu", 0},
	{"kick_cpus_irq_workfn", 0},
	{"sysvec_reschedule_ipi", 0},
	{"sysvec_apic_timer_interrupt", 0},
	{"sysvec_irq_work", 0},
	{"common_interrupt", 0},
	{"handle_softirqs", 0},
}

const required = 2

// Points says where the functions are in a kernel's memory, and what is read of a task.
type Points struct {
	at               map[string]uint64
	state, pid, comm uint32
}

// FindPoints boots a guest with that kernel, which tells.
func FindPoints(ctx context.Context, kernel string, log *slog.Logger) (Points, error) {
	var out bytes.Buffer
	// In this mode the kernel is where it is in every other guest: nokaslr.
	cmd := guest.Command(guest.Machine{Kernel: kernel, Topology: "1s1c1t", Mode: guest.Deterministic},
		"/bin/busybox", "cat", "/proc/kallsyms", "/sys/kernel/btf/vmlinux")
	cmd.Stdout, cmd.Log = &out, log
	if err := cmd.Run(ctx); err != nil {
		return Points{}, fmt.Errorf("read symbols of kernel %s: %w", kernel, err)
	}
	p, err := parsePoints(out.Bytes())
	if err != nil {
		return Points{}, fmt.Errorf("read symbols of kernel %s: %w", kernel, err)
	}
	return p, nil
}

// btfMagic begins BTF, little-endian, with its version.
var btfMagic = []byte{0x9f, 0xeb, 1}

// parsePoints reads a list of symbols that BTF follows.
func parsePoints(text []byte) (Points, error) {
	i := bytes.Index(text, btfMagic)
	if i < 0 {
		return Points{}, errors.New("no BTF")
	}
	p := Points{at: map[string]uint64{}}
	for line := range strings.Lines(string(text[:i])) {
		words := strings.Fields(line)
		if len(words) != 3 || !isTraced(words[2]) {
			continue
		}
		address, err := strconv.ParseUint(words[0], 16, 64)
		if err != nil {
			return Points{}, fmt.Errorf("symbol %s: %w", words[2], err)
		}
		p.at[words[2]] = address
	}
	for _, f := range functions[:required] {
		if p.at[f.name] == 0 {
			return Points{}, fmt.Errorf("no function %s", f.name)
		}
	}
	offsets, err := sched.MemberOffsets(bytes.NewReader(text[i:]), "task_struct", "__state", "pid", "comm")
	if err != nil {
		return Points{}, err
	}
	p.state, p.pid, p.comm = offsets[0], offsets[1], offsets[2]
	return p, nil
}

func isTraced(name string) bool {
	return slices.ContainsFunc(functions, func(f function) bool { return f.name == name })
}

// Write writes what the plugin is to look for into a file, and where its trace goes.
func (p Points) Write(path, out string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "out %s\ntask %d %d %d\n", out, p.state, p.pid, p.comm)
	for _, f := range functions {
		if at := p.at[f.name]; at != 0 {
			fmt.Fprintf(&b, "at %x %d %s\n", at, f.tasks, f.name)
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write points: %w", err)
	}
	return nil
}
