// SPDX-License-Identifier: Apache-2.0

// Package load is an open-loop client of memcached, Redis and HTTP servers, for
// one CPU of its own.
//
// The requests of a run are drawn before its first is sent, and each is
// measured from the moment it was due, not from the moment the client got
// round to it: a server that stalls is charged for every request that the
// stall delayed. One thread does everything and never sleeps: it owns its CPU,
// so that no wakeup of its own enters the figures. What it adds itself, the lag
// between due and sent, is counted beside every latency.
package load

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// Spec is one run of the client.
type Spec struct {
	Addr     string   `json:"addr"` // of the server, host:port
	Protocol Protocol `json:"protocol"`
	// Targets are the kinds of requests of an HTTP load.
	Targets []Target   `json:"targets,omitempty"`
	Seed    uint64     `json:"seed"`
	Load    bench.Load `json:"load"`
	// Rate is the requests a second at this step.
	Rate float64 `json:"rate_rps"`
	// Grace is how long to wait for answers after the last request.
	Grace time.Duration `json:"grace_ns"`
	// Watch are small files to be read at both ends of the window and within
	// it. The client does so in passing: another process would have to take
	// its CPU.
	Watch []string `json:"watch"`
}

// Result is what the client saw.
type Result struct {
	Primary bench.Result `json:"primary"`
	Looks   []Look       `json:"looks"`
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
func Run(ctx context.Context, spec Spec, started func(Started) error) (Result, error) {
	l := spec.Load
	proto, err := spec.protocol()
	if err != nil {
		return Result{}, err
	}
	todo, err := arrivals(l.Arrivals, spec.Seed, spec.Rate, l.Total(), l.Keys, proto.shares())
	if err != nil {
		return Result{}, err
	}
	conns, err := dial(ctx, spec.Addr, l)
	if err != nil {
		return Result{}, err
	}
	defer closeAll(conns)
	if err := prepare(conns[0], proto); err != nil {
		return Result{}, err
	}
	c, err := newClient(conns, todo, proto)
	if err != nil {
		return Result{}, err
	}
	defer c.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	debug.SetGCPercent(-1)
	if c.watch, err = newWatch(l, spec.Watch); err != nil {
		return Result{}, err
	}
	defer c.watch.close()
	c.startAt(lead)
	begin := c.monotonic
	from := begin + l.Warmup + l.Pad
	if err := started(Started{Start: begin, From: from, To: from + l.Window}); err != nil {
		return Result{}, err
	}
	if err := c.drive(ctx, int64(l.Total()+spec.Grace)); err != nil {
		return Result{}, err
	}
	out := Result{Primary: c.collect(l), Looks: c.watch.looks}
	out.Primary.RunDelay, err = c.watch.runDelay()
	return out, err
}

// slowest is how many slow answers a window names.
const slowest = 8

// collect makes figures of the requests that were due in the window.
func (c *client) collect(l bench.Load) bench.Result {
	from := int64(l.Warmup + l.Pad)
	to := from + int64(l.Window)
	out := bench.Result{Latency: bench.NewHist(), Lag: bench.NewHist(), Wrong: c.wrong}
	within, slow := 0, make([]bench.Slow, 0, len(c.todo))
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
		slow = append(slow, bench.Slow{
			Due: time.Duration(a.due - from), Latency: time.Duration(c.answered[i] - a.due),
			Lag: time.Duration(c.sent[i] - a.due), Conn: i % len(c.conns),
		})
	}
	slices.SortStableFunc(slow, func(a, b bench.Slow) int { return cmp.Compare(b.Latency, a.Latency) })
	out.Slowest = slices.Clone(slow[:min(len(slow), slowest)])
	out.Offered = float64(out.Requests) / l.Window.Seconds()
	out.Achieved = float64(within) / l.Window.Seconds()
	return out
}
