// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench/trace"
	"github.com/temper-sched/temper/internal/guest"
)

// A real kernel, traced: a shell wakes when what it started ends.
func TestTraceOfAGuest(t *testing.T) {
	if os.Getenv("REQUIRE_ALL") != "1" {
		t.Skip("boots guests; set REQUIRE_ALL=1 to run it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	points, err := trace.FindPoints(ctx, guest.DefaultKernel, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ask, out := filepath.Join(dir, "points"), filepath.Join(dir, "trace")
	if err := points.Write(ask, out); err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(ask)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"try_to_wake_up", "__switch_to", "scx_bpf_kick_cpu", "handle_softirqs", "sysvec_reschedule_ipi"} {
		if !strings.Contains(string(asked), " "+f+"\n") {
			t.Errorf("kernel %s has no %s: traces of it say less", guest.DefaultKernel, f)
		}
	}

	cmd := guest.Command(guest.Machine{
		Mode: guest.Deterministic, Topology: "1s2c1t",
		Clock: func(ctx context.Context, qemu, version string) (string, error) {
			plugin, err := clock.Tracer(ctx, qemu, version)
			return plugin + ",trace=" + ask, err
		},
	}, "/bin/sh", "-c", "sleep 0.1; sleep 0.1")
	if err := cmd.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if p := cmd.Provenance(); p.Clock != guest.ClockPerVCPU {
		t.Fatalf("clock %q: %s", p.Clock, p.ClockNote)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events, err := trace.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	waits := trace.Waits(events)
	t.Logf("%d events, %d waits", len(events), len(waits))
	for _, name := range []string{"sh", "sleep"} {
		if !slices.ContainsFunc(waits, func(w trace.Wait) bool { return w.Thread.Name == name && w.Woken && w.For() < time.Millisecond }) {
			t.Errorf("no wakeup of %s within a millisecond", name)
		}
	}
}
