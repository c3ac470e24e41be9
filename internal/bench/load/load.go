// SPDX-License-Identifier: Apache-2.0

// Package load is an open-loop memcached client for one CPU of its own.
//
// The requests of a run are drawn before its first is sent, and each is
// measured from the moment it was due, not from the moment the client got
// round to it: a server that stalls is charged for every request that the
// stall delayed. One thread does everything and never sleeps: it owns its CPU,
// so that no wakeup of its own enters the figures. What it adds itself, the lag
// between due and sent, is counted beside every latency.
package load

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// Spec is one run of the client.
type Spec struct {
	Addr string     `json:"addr"` // of the server, host:port
	Seed uint64     `json:"seed"`
	Load bench.Load `json:"load"`
	// Grace is how long to wait for answers after the last request.
	Grace time.Duration `json:"grace_ns"`
}

// Started tells when the measured window lies, on the clock CLOCK_MONOTONIC
// that all processes of a machine share.
type Started struct {
	Start time.Duration `json:"start_ns"` // first request may be due
	From  time.Duration `json:"from_ns"`  // window
	To    time.Duration `json:"to_ns"`
}

// lead is the time between the announcement of the start and the start.
const lead = 20 * time.Millisecond

// Run connects, fills the server, announces the window through started and
// drives the load. It takes over the calling goroutine's thread, and stops the
// garbage collector for good: call it from a process of its own.
func Run(ctx context.Context, spec Spec, started func(Started) error) (bench.Client, error) {
	l := spec.Load
	conns, err := dial(ctx, spec.Addr, l.Conns)
	if err != nil {
		return bench.Client{}, err
	}
	defer closeAll(conns)
	value := []byte(strings.Repeat("v", l.ValueBytes))
	if err := fill(conns[0], l.Keys, value); err != nil {
		return bench.Client{}, err
	}
	todo := arrivals(spec.Seed, l.Rate, l.Total(), l.Keys, l.SetEvery)
	c, err := newClient(conns, todo, value)
	if err != nil {
		return bench.Client{}, err
	}
	defer c.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	debug.SetGCPercent(-1)
	if c.schedstat, err = openSchedstat(); err != nil {
		return bench.Client{}, err
	}
	defer c.schedstat.Close()
	c.startAt(lead)
	begin := c.monotonic
	from := begin + l.Warmup + l.Pad
	if err := started(Started{Start: begin, From: from, To: from + l.Window}); err != nil {
		return bench.Client{}, err
	}
	c.borders = []int64{int64(l.Warmup + l.Pad), int64(l.Warmup + l.Pad + l.Window)}
	if err := c.drive(ctx, int64(l.Total()+spec.Grace)); err != nil {
		return bench.Client{}, err
	}
	return c.collect(l), nil
}

// collect makes figures of the requests that were due in the window.
func (c *client) collect(l bench.Load) bench.Client {
	from := int64(l.Warmup + l.Pad)
	to := from + int64(l.Window)
	out := bench.Client{Latency: bench.NewHist(), Lag: bench.NewHist(), Wrong: c.wrong}
	within := 0
	for i, a := range c.todo {
		if got := c.answered[i]; got >= from && got < to {
			within++
		}
		if a.due < from || a.due >= to {
			continue
		}
		out.Requests++
		if c.sent[i] != never {
			out.Lag.Record(time.Duration(c.sent[i] - a.due))
		}
		if c.answered[i] == never {
			out.Lost++
			continue
		}
		out.Latency.Record(time.Duration(c.answered[i] - a.due))
	}
	out.Offered = float64(out.Requests) / l.Window.Seconds()
	out.Achieved = float64(within) / l.Window.Seconds()
	out.RunDelay = c.delays[1] - c.delays[0]
	return out
}

// openSchedstat opens the calling thread's scheduling statistics.
func openSchedstat() (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/schedstat", unix.Gettid()))
	if err != nil {
		return nil, fmt.Errorf("open own run delay: %w", err)
	}
	return f, nil
}

// runDelay reads how long the thread has been runnable without running.
func runDelay(schedstat *os.File) (time.Duration, error) {
	var buf [96]byte
	n, err := unix.Pread(int(schedstat.Fd()), buf[:], 0)
	if err != nil {
		return 0, fmt.Errorf("read own run delay: %w", err)
	}
	fields := strings.Fields(string(buf[:n]))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read own run delay: %q", buf[:n])
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read own run delay: %w", err)
	}
	return time.Duration(ns), nil
}
