// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

// prober reads the probe, which is the same in every arm and belongs to this
// process: what it costs, it costs all of them. In Temper's arms it measures by
// the scheduler's plan, elsewhere by the same plan of its own.
type prober struct {
	probe  *sched.Probe
	engine *sched.Scheduler // nil where Temper does not schedule
}

// startProbe begins to measure, with the plan that startScheduler wrote.
func (n *node) startProbe() (err error) {
	if n.spec.Arm.NoProbe {
		return nil
	}
	// Loading it is the one thing here that leaves garbage worth collecting.
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.FreeOSMemory()
	p := &prober{}
	n.prober = p
	n.atEnd = append(n.atEnd, p.close)
	if n.spec.Arm.Ops == sched.Name {
		if p.engine, err = sched.Open(sched.DefaultPinDir); err != nil {
			return fmt.Errorf("open scheduler: %w", err)
		}
		if p.probe, err = p.engine.Measure(); err != nil {
			return fmt.Errorf("start probe: %w", err)
		}
		return nil
	}
	groups, err := cgroup.Open(mount)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(n.planFile())
	if err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	plan, err := config.Parse(n.planFile(), text, config.Node{Topology: n.topology, Cgroups: groups})
	if err != nil {
		return err
	}
	if p.probe, err = sched.StartProbe(sched.ProbeConfig{}); err != nil {
		return fmt.Errorf("start probe: %w", err)
	}
	return p.probe.Apply(plan)
}

func (p *prober) close() {
	if p.probe != nil {
		_ = p.probe.Close()
	}
	if p.engine != nil {
		_ = p.engine.Close()
	}
}

// probeReading is what the probe and the engine have counted.
type probeReading struct {
	cpu      [tier.Count]time.Duration
	counters map[string]int64
}

// delays are the tiers' waits and inversions so far.
type delays [tier.Count]sched.TierStats

// read returns the totals.
func (p *prober) read() (r probeReading, err error) {
	if p == nil {
		return r, nil
	}
	tiers, err := p.probe.Tiers()
	if err != nil {
		return r, fmt.Errorf("read probe: %w", err)
	}
	for i, t := range tiers {
		r.cpu[i] = t.CPU
	}
	if r.counters, err = p.probe.Missed(); err != nil {
		return r, fmt.Errorf("read probe: %w", err)
	}
	if p.engine == nil {
		return r, nil
	}
	of, err := p.engine.Counters()
	if err != nil {
		return r, fmt.Errorf("read engine's counters: %w", err)
	}
	maps.Copy(r.counters, of)
	return r, nil
}

// mark lets the maxima begin anew and returns the delays so far.
func (p *prober) mark() (d delays, err error) {
	if p == nil {
		return d, nil
	}
	if err := p.probe.Mark(); err != nil {
		return d, fmt.Errorf("mark probe: %w", err)
	}
	return p.delays()
}

func (p *prober) delays() (d delays, err error) {
	if p == nil {
		return d, nil
	}
	if d, err = p.probe.Delays(); err != nil {
		return d, fmt.Errorf("read delays: %w", err)
	}
	return d, nil
}

// probed is one window's readings of the probe.
type probed struct {
	before, after probeReading
	marked, ended delays
}

// between is what the probe counted in a window.
func (p *prober) between(r probed) *bench.Probe {
	if p == nil {
		return nil
	}
	out := &bench.Probe{Tiers: map[string]bench.TierProbe{}, Counters: map[string]bench.Count{}}
	for i, now := range r.ended {
		then := r.marked[i]
		out.Tiers[tier.Tier(i).String()] = bench.TierProbe{
			Delay:     delayHist(now.WakeupDelay.Sub(then.WakeupDelay)),
			Inversion: now.Inversion - then.Inversion, InversionMax: now.InversionMax,
			WorstWait: now.WorstWait, CPUTime: r.after.cpu[i] - r.before.cpu[i],
		}
	}
	for name, value := range r.after.counters {
		out.Counters[name] = bench.Count{Before: r.before.counters[name], After: value}
	}
	return out
}

// delayHist brings the probe's buckets, eight to a power of two, into the
// record's form: every duration stands in its bucket's middle, and the longest
// at its own length. It is nil if there are none.
func delayHist(h sched.Histogram) *bench.Hist {
	if h.Count() == 0 {
		return nil
	}
	out := bench.NewHist()
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		low, high := sched.BucketBounds(i)
		if h.Max >= low && h.Max < high {
			out.Record(h.Max)
			n--
		}
		middle := min(low+(high-low)/2, max(h.Max, time.Nanosecond))
		out.RecordN(middle, int64(n))
	}
	return out
}
