// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/temper-sched/temper/internal/metric"
	"github.com/temper-sched/temper/internal/sched"
)

// counts are totals since the agent's start.
type counts struct {
	ejects     map[sched.Reason]int
	attach     metric.Dist
	apply      metric.Dist
	effective  metric.Dist
	generation uint64 // of the last plan that this agent applied
}

func (c counts) clone() counts {
	c.ejects = maps.Clone(c.ejects)
	c.attach, c.apply, c.effective = c.attach.Clone(), c.apply.Clone(), c.effective.Clone()
	return c
}

// view is what the loop shows others. Nobody changes it any more.
type view struct {
	Report
	counts   counts
	unmarked uint64 // tries to mark the node that failed
	own      bool   // the probe runs by its own plan
	paced    map[podName]time.Duration
}

// show returns the view of now.
func (l *loop) show() *view {
	plan := l.plan
	if l.super.held && l.applied != nil {
		plan = *l.applied
	}
	return &view{
		Report: Report{
			Node: l.Config.Node, Version: l.Config.Version, Mode: string(l.Config.Mode), Engine: l.engineLabel(),
			Reason: l.super.verdict.Reason, Message: l.super.verdict.Message, Since: l.since,
			Kernel: l.Machine.Kernel, Connected: l.known && l.snapshot.Connected,
			Topology: l.obs.Topology, State: l.state, Checks: l.checks, Pods: l.obs.Pods, Plan: plan,
			LimitsNotHeld: l.unheld, Ejects: len(l.super.record.recent(l.Machine.Uptime())),
		},
		counts: l.counts.clone(), unmarked: l.publisher.failed.Load(), own: l.measuring.own,
	}
}

// keepFor is how old a reading may be that is served: many scrapes cost as one.
const keepFor = time.Second

// reader reads what the kernel counts, apart from the loop, which must not wait.
type reader struct {
	*Agent

	mu    sync.Mutex
	at    time.Time
	last  view
	usage bool // it has what the kernel counted for limited cgroups
	paced pacing
}

// read returns the loop's view, with limits and statistics, and where usage is asked
// for with what the kernel counted for limited cgroups, a file of each; false before
// the loop has decided for the first time.
func (r *reader) read(usage bool) (view, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.view.Load()
	if now == nil || now.Reason == "" {
		return view{}, false
	}
	if r.at.IsZero() || time.Since(r.at) >= keepFor || now.Reason != r.last.Reason || usage && !r.usage {
		next := *now
		r.usage = usage
		if err := r.measure(&next); err != nil {
			r.Log.Debug("statistics not read", "err", err)
		}
		r.last, r.at = next, time.Now()
	}
	return r.last, true
}

func (r *reader) measure(v *view) error {
	if !v.State.Attached {
		r.paced = pacing{}
		if !v.own {
			return nil
		}
		stats, err := r.Machine.Measured()
		if err == nil {
			v.Stats = &stats
		}
		return err
	}
	engine, err := r.Machine.Open()
	if err != nil {
		return err
	}
	stats, err := engine.Stats()
	if err == nil {
		v.Stats = &stats
	}
	var limitsErr error
	v.Limits, limitsErr = engine.Limits()
	err = errors.Join(err, limitsErr, engine.Close(), r.name(v))
	if limitsErr == nil {
		r.paced = r.paced.with(v.Pods, v.Limits)
	}
	v.paced = r.paced.sums
	return err
}

// name adds to groups and limits what the kernel side does not know.
func (r *reader) name(v *view) error {
	if v.Stats == nil && len(v.Limits) == 0 {
		return nil
	}
	paths, err := r.Cgroups.Paths()
	if err != nil {
		return err
	}
	var limited []string
	for i := range v.Limits {
		if v.Limits[i].Cgroup = paths[v.Limits[i].ID]; v.Limits[i].Cgroup != "" {
			limited = append(limited, v.Limits[i].Cgroup)
		}
	}
	if v.Stats != nil {
		for i := range v.Stats.Groups {
			v.Stats.Groups[i].Cgroup = paths[v.Stats.Groups[i].ID]
		}
	}
	if !r.usage || len(limited) == 0 {
		return nil
	}
	used, err := r.Cgroups.Usage(limited)
	for i := range v.Limits {
		v.Limits[i].KernelUsage = used[v.Limits[i].Cgroup]
	}
	return err
}
