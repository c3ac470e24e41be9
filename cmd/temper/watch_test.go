// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/sched"
)

// ticking is an engine that counts heartbeats and plays states by the time.
type ticking struct {
	start  time.Time
	beats  []time.Duration
	state  func(at time.Duration) (sched.State, error)
	beaten error
}

func (e *ticking) Heartbeat() error {
	e.beats = append(e.beats, time.Since(e.start))
	return e.beaten
}

func (e *ticking) State() (sched.State, error) { return e.state(time.Since(e.start)) }

// observe runs the watch until it ends by itself or stop has passed, and
// returns how and when it ended, and what it logged.
func observe(t *testing.T, e *ticking, stop time.Duration) (end *ending, after time.Duration, log string) {
	t.Helper()
	var text bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		e.start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), stop)
		defer cancel()
		w := &watch{engine: e, deadMan: 30 * time.Second, log: slog.New(slog.NewTextHandler(&text, nil)), refresh: func() error { return nil }}
		end = w.run(ctx)
		after = time.Since(e.start)
	})
	return end, after, text.String()
}

func attached(time.Duration) (sched.State, error) { return sched.State{Attached: true}, nil }

func TestWatchKeepsTheDeadManAway(t *testing.T) {
	e := &ticking{state: attached}
	end, after, log := observe(t, e, time.Minute)
	if end != nil || after != time.Minute || log != "" {
		t.Errorf("ended %v after %v, logged %q; want to last the minute in silence", end, after, log)
	}
	if len(e.beats) < 20 || len(e.beats) > 22 {
		t.Errorf("%d heartbeats in a minute, want one each 3 s", len(e.beats))
	}
	for i := 1; i < len(e.beats); i++ {
		if gap := e.beats[i] - e.beats[i-1]; gap > 4*time.Second {
			t.Errorf("%v between heartbeats %d and %d", gap, i-1, i)
		}
	}
}

func TestWatchNoticesTheEnd(t *testing.T) {
	const at = 7*time.Second + 10*time.Millisecond
	cases := map[string]struct {
		gone   sched.State
		want   ending
		within time.Duration
	}{
		"ejected":             {sched.State{Exit: &sched.Exit{Reason: sched.EjectedSysRq, Message: "disabled by sysrq-S"}}, ending{sched.EjectedSysRq, "disabled by sysrq-S"}, time.Second},
		"stopped":             {sched.State{Exit: &sched.Exit{Reason: sched.Stopped}}, ending{sched.Stopped, ""}, time.Second},
		"replaced":            {sched.State{Ops: "lavd"}, ending{sched.ForeignScheduler, `scheduler "lavd" is loaded instead`}, time.Second},
		"gone without a word": {sched.State{}, ending{sched.EjectedError, "no reason was recorded"}, agent.ReasonWithin + time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := &ticking{state: func(now time.Duration) (sched.State, error) {
				if now >= at {
					return c.gone, nil
				}
				return attached(now)
			}}
			end, after, _ := observe(t, e, time.Minute)
			if end == nil || *end != c.want {
				t.Fatalf("ended %+v, want %+v", end, c.want)
			}
			if late := after - at; late > c.within {
				t.Errorf("noticed after %v", late)
			}
			if beats := e.beats[len(e.beats)-1]; beats >= at {
				t.Errorf("a heartbeat at %v, after the end", beats)
			}
		})
	}
}

func TestWatchOutlastsPassingErrors(t *testing.T) {
	e := &ticking{beaten: errors.New("map is busy"), state: func(now time.Duration) (sched.State, error) {
		if now > time.Second && now < 3*time.Second {
			return sched.State{}, errors.New("no such file")
		}
		return attached(now)
	}}
	end, _, log := observe(t, e, 10*time.Second)
	if end != nil {
		t.Errorf("ended %+v", end)
	}
	if n := strings.Count(log, "read state"); n != 1 {
		t.Errorf("%d lines about the state, want 1:\n%s", n, log)
	}
	if n := strings.Count(log, "map is busy"); n != 1 {
		t.Errorf("%d lines about the heartbeat, want 1:\n%s", n, log)
	}
}

// TestWatchWaitsForTheReason: the kernel says that it disables a scheduler
// before the scheduler has recorded why.
func TestWatchWaitsForTheReason(t *testing.T) {
	e := &ticking{state: func(now time.Duration) (sched.State, error) {
		switch {
		case now < time.Second:
			return attached(now)
		case now < 1400*time.Millisecond:
			return sched.State{Kernel: "disabling", Ops: sched.Name}, nil
		}
		return sched.State{Kernel: "disabled", Exit: &sched.Exit{Reason: sched.EjectedSysRq}}, nil
	}}
	end, after, _ := observe(t, e, time.Minute)
	if end == nil || end.Reason != sched.EjectedSysRq || after > 2*time.Second {
		t.Errorf("ended %+v after %v", end, after)
	}
}

// TestWatchThatWasStopped is a process that gets no time for a minute and finds
// the dead-man gone off: it must not write a heartbeat before it looks.
func TestWatchThatWasStopped(t *testing.T) {
	e := &ticking{}
	e.state = func(now time.Duration) (sched.State, error) {
		if now >= time.Second && now < time.Minute {
			time.Sleep(time.Minute - now)
			return sched.State{Exit: &sched.Exit{Reason: sched.AgentStale, Message: "no heartbeat for 30 s"}}, nil
		}
		return attached(now)
	}
	end, _, _ := observe(t, e, time.Hour)
	if end == nil || end.Reason != sched.AgentStale || end.failure().code != exitEjected {
		t.Errorf("ended %+v", end)
	}
	if last := e.beats[len(e.beats)-1]; last > 2*time.Second {
		t.Errorf("a heartbeat at %v", last)
	}
}
