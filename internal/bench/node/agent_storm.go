// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/sched"
)

const (
	// lookEvery is how often the kernel is asked whether the plan in force has the
	// pods that wait for it: as exact as their latencies are.
	lookEvery = 200 * time.Microsecond
	// stormFor is how long pods come and go, and aliveStorm how many of them are
	// there at a time.
	stormFor   = 2 * time.Second
	aliveStorm = 60
	// suspicious is how long a pod may wait until the plan is looked for anew: another
	// scheduler may have taken the place of the one that was there, with maps of its own.
	suspicious = 100 * time.Millisecond
)

// storm is pods that come and go.
type storm struct {
	*agentStep
	eye   *planEye
	alive []stormPod
}

type stormPod struct {
	kubetest.Pod
	dir string
}

// storm lets pods come and go at random moments and notes when each is in force.
func (s *agentStep) storm(ctx context.Context) error {
	s.result.Latency, s.result.Lag = bench.NewHist(), bench.NewHist()
	st := &storm{agentStep: s, eye: &planEye{api: s.api, from: s.from, result: &s.result}}
	if err := st.eye.open(); err != nil {
		return err
	}
	defer func() { st.eye.engine.Close() }()
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
	st.eye.giveUp()
	s.result.Offered = float64(s.result.Ops) / (until - s.from).Seconds()
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
	s.result.Requests++
	s.alive = append(s.alive, stormPod{p, dir})
	now := monotonic()
	id, err := cgroupID(dir)
	s.eye.waiting = append(s.eye.waiting, coming{id, p.Path(), now})
	return err
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

// planEye sees when the plan in force has the pods that wait for it.
type planEye struct {
	engine  *sched.Scheduler
	opened  time.Duration
	api     *kubetest.Server
	waiting []coming
	from    time.Duration
	result  *bench.Result
}

func (e *planEye) open() error {
	e.opened = monotonic()
	engine, err := sched.Open(sched.DefaultPinDir)
	if err != nil {
		return fmt.Errorf("watch plan: %w", err)
	}
	if e.engine != nil {
		e.engine.Close()
	}
	e.engine = engine
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

// giveUp counts those that the plan never had, for as long as they have waited:
// lost, they would make the window void, and hide themselves.
func (e *planEye) giveUp() {
	now := monotonic()
	for _, c := range e.waiting {
		e.note(c.made, now-c.made)
	}
	e.waiting = nil
}

func (e *planEye) note(due, took time.Duration) {
	e.result.Latency.Record(took)
	e.result.Slowest = slowest(append(e.result.Slowest, bench.Slow{Due: due - e.from, Latency: took}))
}

// look asks for each pod whether the plan has it. What counts is from the moment
// when the pod's cgroup was there and the API server had sent its event.
func (e *planEye) look() {
	if now := monotonic(); len(e.waiting) > 0 && now-e.waiting[0].made > suspicious && now-e.opened > suspicious {
		_ = e.open() // none is there at the moment: the one before has none of the pods that wait
	}
	e.waiting = slices.DeleteFunc(e.waiting, func(c coming) bool {
		if has, err := e.engine.Has(c.id); err != nil || !has {
			return false // it is being replaced, or does not have it yet
		}
		now, due := monotonic(), c.made
		if told := e.api.Told(c.path); !told.IsZero() {
			due = max(due, now-time.Since(told))
		}
		e.note(due, max(now-due, 0))
		return true
	})
}
