// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/run"
)

func TestProgressSaysHowLongTheRestTakes(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, run.Todo{Runs: 12, Windows: 48})
	p.now = func() time.Time { return p.begin.Add(8 * time.Minute) }
	p.update(run.Update{Text: "the last line was cut off"})
	for range 4 {
		p.update(run.Update{Arm: "temper", Seed: 3, Record: &bench.Record{}})
	}
	p.update(run.Update{Arm: "temper", Seed: 3, Text: "settled"})
	p.update(run.Update{Arm: "temper", Seed: 3, Ended: &run.Ended{Windows: 4, Void: 1, Took: 8 * time.Minute}})
	p.update(run.Update{Arm: "eevdf", Seed: 3, Ended: &run.Ended{Err: errors.New("guest lost:\nconsole")}})
	want := []string{
		"the last line was cut off",
		"[ 1/12] temper             seed 3   4 windows, 1 void in 8m0s; about 88 min left",
		"[ 2/12] eevdf              seed 3   0 windows, FAILED: guest lost:",
		"    console in 0s; about 88 min left",
	}
	if got := strings.TrimSpace(out.String()); got != strings.Join(want, "\n") {
		t.Errorf("not on a terminal:\n%s", got)
	}
	if p.void != 1 || p.failed != 1 || p.windows != 4 {
		t.Errorf("%d void, %d failed, %d windows", p.void, p.failed, p.windows)
	}
}

func TestOnATerminalOneLineCounts(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, run.Todo{Runs: 1, Windows: 2})
	p.tty = true
	p.update(run.Update{Arm: "temper", Seed: 1, Text: "booting a guest"})
	p.update(run.Update{Arm: "temper", Seed: 1, Record: &bench.Record{}})
	p.update(run.Update{Arm: "temper", Seed: 1, Ended: &run.Ended{Windows: 1}})
	got := out.String()
	if !strings.Contains(got, "\r\x1b[K0 of 2 windows, 2 windows left; temper seed 1: booting") || !strings.Contains(got, "\r\x1b[K1 of 2 windows") {
		t.Errorf("got %q", got)
	}
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "\r\x1b[K[1/1]") {
		t.Errorf("the line that stays does not replace the counting one: %q", got)
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		42 * time.Second: "42 s", 95 * time.Minute: "95 min", 130 * time.Minute: "2 h 10 min", 99 * time.Second: "99 s", 101 * time.Second: "2 min",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestChosen(t *testing.T) {
	for only, want := range map[string]bool{
		"memcached-ladder/1s2c2t/temper/seed=3": true, "memcached-ladder/1s4c1t/temper/seed=3": false,
		"": true, "temper": true, "temper/3": true, "/3": true, "temper/4": false, "eevdf": false, "/30": false, "temper:again/3": false,
	} {
		r := &bench.Record{Seed: 3}
		r.Scenario.Name, r.Machine.Topology, r.Arm.Name = "memcached-ladder", "1s2c2t", "temper"
		if got := chosen(only, r); got != want {
			t.Errorf("--only %q: %v", only, got)
		}
	}
}
