// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// primary is the critical pod's work, and whoever drives and measures it.
type primary interface {
	// start brings up what lives through the whole run.
	start(ctx context.Context) error
	// begin starts one step and returns once its window is known.
	begin(ctx context.Context, step bench.Step) (window, error)
}

// window is a step in progress.
type window interface {
	// span is the measured part, on CLOCK_MONOTONIC.
	span() (from, to time.Duration)
	// end waits for the step's end. The samples are those that the primary's
	// own instrument took within the window, none if it has no such instrument.
	end() (bench.Result, []bench.SchedSample, error)
}

// newPrimary returns the scenario's.
func (n *node) newPrimary() primary {
	if n.spec.Scenario.KindOf().Server {
		return &server{node: n}
	}
	return &selfMeasured{node: n}
}

// step measures one window.
func (n *node) step(ctx context.Context, p primary, step bench.Step) (*bench.Window, error) {
	if err := n.setSpinners(ctx, step.Density); err != nil {
		return nil, err
	}
	if err := sleep(ctx, stepSettle); err != nil {
		return nil, err
	}
	n.counters.pods = n.at(step)
	if err := n.counters.findKernelThreads(); err != nil {
		return nil, err
	}
	running, err := p.begin(ctx, step)
	if err != nil {
		return nil, err
	}
	w := &bench.Window{Step: step, IdleBefore: n.idle, Weights: maps.Clone(n.tree.weights), Cpusets: maps.Clone(n.tree.cpusets)}
	from, to := running.span()
	if err := inRealTime(func() error { return n.watch(ctx, w, from, to) }); err != nil {
		return nil, err
	}
	var within []bench.SchedSample
	if w.Primary, within, err = running.end(); err != nil {
		return nil, err
	}
	w.Sched = slices.Insert(w.Sched, 1, within...)
	return w, nil
}

// glances is how often the scheduler's identity is read within a window where
// no client does so.
const glances = 3

// watch reads counters and the scheduler's identity around the window. Reading
// takes a CPU from somebody and is done in the pads, outside of what is
// measured; within the window the client looks at the identity itself.
func (n *node) watch(ctx context.Context, w *bench.Window, from, to time.Duration) error {
	pad := n.spec.Scenario.Load.Pad
	if err := sleepUntil(ctx, from-pad); err != nil {
		return err
	}
	w.Sched = append(w.Sched, sampleSched(from))
	before, counted, err := n.read(true)
	if err != nil {
		return err
	}
	for i := 1; i <= glances && n.glance != nil; i++ {
		if err := sleepUntil(ctx, from+(to-from)*time.Duration(i)/(glances+1)); err != nil {
			return err
		}
		w.Sched = append(w.Sched, n.glance.sample(from))
	}
	if err := sleepUntil(ctx, to+pad); err != nil {
		return err
	}
	after, countedAfter, err := n.read(false)
	if err != nil {
		return err
	}
	w.Ledger, w.Realtime = n.counters.ledger(before, after), after.realtime-before.realtime
	w.Pods = shares(n.counters.pods, before.pods, after.pods)
	w.Probe = n.prober.between(counted, countedAfter)
	w.Sched = append(w.Sched, sampleSched(from))
	return nil
}

// read takes both books: the ledger's first, whose length is compared with
// what was asked for.
func (n *node) read(first bool) (reading, probeReading, error) {
	r, err := n.counters.read()
	if err != nil {
		return r, probeReading{}, err
	}
	counted, err := n.prober.read(first)
	return r, counted, err
}
