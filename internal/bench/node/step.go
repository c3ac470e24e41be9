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

// measuresLimits is a window whose work knows what was used of its limits.
type measuresLimits interface {
	limits(into []bench.Limit) error
}

// newPrimary returns the scenario's.
func (n *node) newPrimary() primary {
	switch kind := n.spec.Scenario.KindOf(); {
	case kind.Agent:
		return &agentNode{node: n}
	case kind.Tool:
		return &database{node: n}
	case kind.Server:
		return &server{node: n}
	}
	return &selfMeasured{node: n}
}

// step measures one window.
func (n *node) step(ctx context.Context, p primary, step bench.Step) (*bench.Window, error) {
	if !n.starves() {
		if err := n.settleBackground(ctx, step.Density); err != nil {
			return nil, err
		}
	}
	n.counters.pods = n.at(step)
	if err := n.setLimits(); err != nil {
		return nil, err
	}
	if err := n.counters.findKernelThreads(); err != nil {
		return nil, err
	}
	running, err := p.begin(ctx, step)
	if err != nil {
		return nil, err
	}
	w := &bench.Window{Step: step, IdleBefore: n.idle, Weights: maps.Clone(n.tree.weights), Cpusets: maps.Clone(n.tree.cpusets)}
	if err := inRealTime(func() error { return n.watch(ctx, running, w) }); err != nil {
		return nil, err
	}
	if n.starves() {
		if err := n.setBackground(ctx, 0); err != nil {
			return nil, err
		}
	}
	var within []bench.SchedSample
	if w.Primary, within, err = running.end(); err != nil {
		return nil, err
	}
	if m, ok := running.(measuresLimits); ok {
		if err := m.limits(w.Limits); err != nil {
			return nil, err
		}
	}
	w.Sched = slices.Insert(w.Sched, 1, within...)
	return w, nil
}

// watch reads counters and the scheduler's identity around the window. Reading
// takes a CPU from somebody and is done in the pads, outside of what is
// measured; within the window the client looks at the identity itself.
func (n *node) watch(ctx context.Context, running window, w *bench.Window) error {
	from, to := running.span()
	pad := n.spec.Scenario.Load.Pad
	if err := sleepUntil(ctx, from-pad); err != nil {
		return err
	}
	w.Sched = append(w.Sched, sampleSched(from))
	before, p, err := n.readBefore(ctx, from)
	if err != nil {
		return err
	}
	w.ReadBy = monotonic() - from
	var changes [][]bench.LimitChange
	moments := slices.Concat(n.glances(w, from, to), n.changeLimits(from, &changes))
	if s, ok := running.(interface{ moments() []moment }); ok {
		moments = append(moments, s.moments()...)
	}
	if err := carryOut(ctx, moments); err != nil {
		return err
	}
	if err := sleepUntil(ctx, to+pad); err != nil {
		return err
	}
	after, err := n.readAfter(&p)
	if err != nil {
		return err
	}
	w.Ledger, w.Realtime = n.counters.ledger(before, after), after.realtime-before.realtime
	w.Pods = shares(n.counters.pods, before.pods, after.pods)
	w.Limits = n.counters.limits(before.limits, after.limits, changes)
	w.Probe = n.prober.between(p)
	w.Sched = append(w.Sched, sampleSched(from))
	return nil
}

// readBefore takes the readings before the window. Where pods use this CPU too,
// waits and maxima are counted from a quarter of the pad before the window only:
// nobody waits any more then because of the reading.
func (n *node) readBefore(ctx context.Context, from time.Duration) (r reading, p probed, err error) {
	if r, err = n.counters.read(); err != nil {
		return r, p, err
	}
	if p.before, err = n.prober.read(); err != nil {
		return r, p, err
	}
	if scenario := n.spec.Scenario; !scenario.Instrument {
		if err := sleepUntil(ctx, from-scenario.Load.Pad/4); err != nil {
			return r, p, err
		}
	}
	p.marked, err = n.prober.mark()
	return r, p, err
}

// readAfter takes those after it, the waits first: reading makes some.
func (n *node) readAfter(p *probed) (r reading, err error) {
	if p.ended, err = n.prober.delays(); err != nil {
		return r, err
	}
	if r, err = n.counters.read(); err != nil {
		return r, err
	}
	p.after, err = n.prober.read()
	return r, err
}

// glances looks at the scheduler's identity within the window, where no client
// does so.
func (n *node) glances(w *bench.Window, from, to time.Duration) (out []moment) {
	const looks = 3
	for i := 1; i <= looks && n.glance != nil; i++ {
		out = append(out, moment{from + (to-from)*time.Duration(i)/(looks+1), func() error {
			w.Sched = append(w.Sched, n.glance.sample(from))
			return nil
		}})
	}
	return out
}
