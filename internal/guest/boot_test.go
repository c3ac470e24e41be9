// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func testBoot(t *testing.T, m Machine) *boot {
	t.Helper()
	m = m.withDefaults()
	topo, err := ParseTopology(m.Topology)
	if err != nil {
		t.Fatal(err)
	}
	b := &boot{machine: m, topology: topo, kernel: kernel{path: "/vmlinux"}, qemu: "/qemu", dir: "/run"}
	c := &Cmd{Machine: m, Log: slog.New(slog.DiscardHandler), accel: accelTCG}
	if err := b.choose(t.Context(), c, "10.0.2"); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCommandLines(t *testing.T) {
	plugin := func(context.Context, string, string) (string, error) { return "/clock.so", nil }
	for name, tc := range map[string]struct {
		machine Machine
		kvm     bool
		clock   string
		has     []string
		lacks   []string
	}{
		"functional": {
			machine: Machine{Append: []string{"preempt=full"}},
			clock:   ClockHost,
			has:     []string{"tcg,thread=multi", "no_timer_check", "preempt=full", "4,sockets=1,cores=4,threads=1"},
			lacks:   []string{"-icount", "nokaslr", "-numa", "-netdev"},
		},
		"with a network": {
			machine: Machine{Forward: map[int]int{8022: 22, 8010: 10}},
			clock:   ClockHost,
			has:     []string{"user,id=net,hostfwd=tcp:127.0.0.1:8010-:10,hostfwd=tcp:127.0.0.1:8022-:22", "virtio-net-pci,netdev=net"},
		},
		"functional on kvm": {
			kvm:   true,
			clock: ClockHost,
			has:   []string{"-accel kvm", "-cpu host"},
			lacks: []string{"tcg", "no_timer_check"},
		},
		"deterministic": {
			machine: Machine{Mode: Deterministic, Seed: 7, Topology: "2s2c1t"},
			clock:   ClockICount,
			has: []string{
				"tcg,thread=single", "shift=0,sleep=off", "base=2026-01-01,clock=vm", "-seed 7", "interval=20", "-cpu max,-monitor,-erms,",
				"nokaslr norandmaps mitigations=off transparent_hugepage=never", "cpu,node-id=1,socket-id=1", "ioeventfd=off",
			},
			lacks: []string{"-plugin", "tsc=reliable", "no_timer_check"},
		},
		"deterministic with a clock per vCPU": {
			machine: Machine{Mode: Deterministic, Clock: plugin},
			clock:   ClockPerVCPU,
			has:     []string{"-plugin /clock.so", "tsc=reliable", "-icount shift=0,sleep=off"},
			lacks:   []string{"filter-buffer", "quantum"},
		},
		"deterministic and slow": {
			machine: Machine{Mode: Deterministic, Clock: plugin, InstructionNs: 8},
			clock:   ClockPerVCPU,
			has:     []string{"-plugin /clock.so,quantum=4000,pause=800", "-icount shift=3,sleep=off"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := testBoot(t, tc.machine)
			if tc.kvm {
				b.accel = accelKVM
			}
			if b.clock != tc.clock {
				t.Errorf("clock is %q, want %q", b.clock, tc.clock)
			}
			line := strings.Join(b.args(), " ")
			for _, s := range tc.has {
				if !strings.Contains(line, s) {
					t.Errorf("no %q in %s", s, line)
				}
			}
			for _, s := range tc.lacks {
				if strings.Contains(line, s) {
					t.Errorf("%q in %s", s, line)
				}
			}
		})
	}
}

func TestClockThatFailsIsSaidInProvenance(t *testing.T) {
	b := testBoot(t, Machine{Mode: Deterministic, Clock: func(context.Context, string, string) (string, error) {
		return "", errors.New("no compiler")
	}})
	if b.clock != ClockICount || b.clockNote != "no compiler" || b.plugin != "" {
		t.Errorf("got clock %q, note %q, plugin %q", b.clock, b.clockNote, b.plugin)
	}
}

func TestParseMode(t *testing.T) {
	for _, m := range []Mode{Functional, Deterministic} {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%v: got %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("fast"); err == nil {
		t.Error("fast is no mode")
	}
}

func TestInstructionNs(t *testing.T) {
	for ns, ok := range map[int]bool{-8: false, 0: true, 1: true, 3: false, 8: true, 1024: true, 2048: false} {
		if err := (Machine{InstructionNs: ns}).withDefaults().checkInstruction(); (err == nil) != ok {
			t.Errorf("%d ns: %v", ns, err)
		}
	}
}
