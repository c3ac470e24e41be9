// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/sched"
)

const (
	// lookEvery is how often the kernel is asked what plan is in force while a pod
	// waits for it: as exact as its latency is.
	lookEvery = 200 * time.Microsecond
	// stormFor is how long pods come and go, and aliveStorm how many of them are
	// there at a time.
	stormFor   = 2 * time.Second
	aliveStorm = 60
	// sampleEvery is how often one of them is watched until it is in force.
	// Reading a plan takes the instrument's CPU for milliseconds, which the API
	// server needs.
	sampleEvery = 40 * time.Millisecond
)

// storm is pods that come and go.
type storm struct {
	*agentStep
	eye    *planEye
	alive  []stormPod
	sample time.Duration // when the next pod is watched
}

type stormPod struct {
	kubetest.Pod
	dir string
}

// storm lets pods come and go at random moments and notes when those that are
// watched are in force.
func (s *agentStep) storm(ctx context.Context) error {
	engine, err := sched.Open(sched.DefaultPinDir)
	if err != nil {
		return fmt.Errorf("watch plan: %w", err)
	}
	defer engine.Close()
	s.result.Latency, s.result.Lag = bench.NewHist(), bench.NewHist()
	st := &storm{agentStep: s, eye: &planEye{engine: engine, api: s.api, from: s.from, result: &s.result}, sample: s.from}
	random := rand.New(rand.NewPCG(s.node.spec.seedAt(s.step), 0))
	until := min(s.from+stormFor, s.to)
	for next := s.from; ; {
		next += time.Duration(random.ExpFloat64() / s.step.Rate * float64(time.Second))
		if next >= until {
			break
		}
		if err := st.eye.watch(ctx, next); err != nil {
			return err
		}
		s.result.Lag.Record(max(monotonic()-next, 0))
		if err := st.come(); err != nil {
			return err
		}
		if err := st.leave(aliveStorm); err != nil {
			return err
		}
	}
	if err := st.eye.last(ctx); err != nil {
		return err
	}
	s.result.Offered = float64(s.result.Ops) / (until - s.from).Seconds()
	s.result.Lost = len(st.eye.waiting)
	return st.leave(0)
}

// come makes a pod.
func (s *storm) come() error {
	n := s.result.Ops
	p := kubetest.Pod{QoS: []string{"Burstable", "BestEffort"}[n%2], Priority: int(n%3) * 500_000}
	dir, err := s.makePod(&p)
	if err != nil {
		return err
	}
	s.result.Ops++
	s.alive = append(s.alive, stormPod{p, dir})
	now := monotonic()
	if now < s.sample {
		return nil
	}
	id, err := cgroupID(dir)
	if err != nil {
		return err
	}
	s.result.Requests++
	s.sample += sampleEvery
	return s.eye.expect(coming{id, p.Path(), now})
}

// leave removes the oldest pods until there are no more than most.
func (s *storm) leave(most int) error {
	for ; len(s.alive) > most; s.alive = s.alive[1:] {
		if err := s.removePod(s.alive[0].Pod, s.alive[0].dir); err != nil {
			return err
		}
	}
	return nil
}

// coming is a pod of which the plan in force does not know yet.
type coming struct {
	id   uint64
	path string        // of its object
	made time.Duration // when both its object and its cgroup were there
}

// planEye sees which pods the plan in force has.
type planEye struct {
	engine     *sched.Scheduler
	api        *kubetest.Server
	generation uint64
	waiting    []coming
	from       time.Duration
	result     *bench.Result
}

// expect has a pod watched that has just come: the plan of now cannot have it.
func (e *planEye) expect(c coming) error {
	state, err := e.engine.State()
	if err != nil {
		return fmt.Errorf("watch plan: %w", err)
	}
	e.generation = state.Generation
	e.waiting = append(e.waiting, c)
	return nil
}

// watch looks until a moment.
func (e *planEye) watch(ctx context.Context, until time.Duration) error {
	for {
		e.look()
		now := monotonic()
		if now >= until {
			return nil
		}
		next := until
		if len(e.waiting) > 0 {
			next = min(until, now+lookEvery)
		}
		if err := sleepUntil(ctx, next); err != nil {
			return err
		}
	}
}

// last waits for those of which nothing was seen yet.
func (e *planEye) last(ctx context.Context) error {
	for end := monotonic() + time.Second; len(e.waiting) > 0 && monotonic() < end; {
		if err := e.watch(ctx, monotonic()+lookEvery); err != nil {
			return err
		}
	}
	return nil
}

// look reads the plan if it is another than before. What counts is from the
// moment when the pod's cgroup was there and the API server had sent its event to
// the moment before reading, which takes longer than any change to the maps.
func (e *planEye) look() {
	for len(e.waiting) > 0 {
		state, err := e.engine.State()
		if err != nil || state.Generation == e.generation {
			return
		}
		now := monotonic()
		ids := planned(e.engine)
		e.generation = state.Generation
		var left []coming
		for _, c := range e.waiting {
			if !ids[c.id] {
				left = append(left, c)
				continue
			}
			due := c.made
			if told := e.api.Told(c.path); !told.IsZero() {
				due = max(due, monotonic()-time.Since(told))
			}
			took := max(now-due, 0)
			e.result.Latency.Record(took)
			e.result.Slowest = slowest(append(e.result.Slowest, bench.Slow{Due: due - e.from, Latency: took}))
		}
		e.waiting = left
	}
}
