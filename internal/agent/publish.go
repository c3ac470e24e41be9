// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/temper-sched/temper/internal/kube"
)

const (
	// againAfter is how soon a write that failed is tried again, and doubles with
	// each that fails.
	againAfter = time.Second
	// confirmEvery is how often a condition is written again: the cluster keeps
	// it if nothing differs, and somebody may have changed it.
	confirmEvery = 10 * time.Second
	// maxNews bounds the Events that wait for the API server, of the node and of
	// pods each.
	maxNews = 64
)

// mark is what the node object says of the engine.
type mark struct {
	condition kube.Condition
	engine    string
}

// publisher writes to the API server, which may be slow or away, so that the
// loop need not. The last mark wins; Events wait in order, those of pods until none
// of the node does.
type publisher struct {
	cluster Cluster
	log     *slog.Logger
	marks   chan mark
	news    chan kube.Event
	ofPods  chan kube.Event
	failed  atomic.Uint64 // tries to mark the node
}

func newPublisher(c Cluster, log *slog.Logger) *publisher {
	return &publisher{
		cluster: c, log: log, marks: make(chan mark, 1),
		news: make(chan kube.Event, maxNews), ofPods: make(chan kube.Event, maxNews),
	}
}

// set and say are called by the loop alone, and never wait.

func (p *publisher) set(m mark) {
	select {
	case <-p.marks:
	default:
	}
	p.marks <- m
}

func (p *publisher) say(e kube.Event) {
	queue := p.news
	if e.Pod != nil {
		queue = p.ofPods
	}
	select {
	case queue <- e:
	default:
		p.log.Warn("event dropped: too many wait for the API server", "reason", e.Reason)
	}
}

func (p *publisher) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { p.mark(ctx) })
	both.Go(func() { p.tell(ctx) })
	both.Wait()
}

func (p *publisher) mark(ctx context.Context) {
	var want mark
	var failed bool
	pause := againAfter
	timer := time.NewTimer(confirmEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case want = <-p.marks:
		case <-timer.C:
		}
		if want.engine == "" {
			continue
		}
		err := errors.Join(p.cluster.SetCondition(ctx, want.condition), p.cluster.SetEngine(ctx, want.engine))
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.failed.Add(1)
		}
		if err != nil && !failed {
			p.log.WarnContext(ctx, "node not marked, trying again", "err", err)
		}
		failed = err != nil
		if failed {
			timer.Reset(pause)
			pause = min(2*pause, confirmEvery)
		} else {
			timer.Reset(confirmEvery)
			pause = againAfter
		}
	}
}

func (p *publisher) tell(ctx context.Context) {
	for {
		select {
		case e := <-p.news:
			p.deliver(ctx, e)
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return
		case e := <-p.news:
			p.deliver(ctx, e)
		case e := <-p.ofPods:
			p.deliver(ctx, e)
		}
	}
}

// deliver gives up on an Event that several tries did not bring over: newer ones
// say more.
func (p *publisher) deliver(ctx context.Context, e kube.Event) {
	const tries = 5
	var err error
	for try := range tries {
		if err = p.cluster.Event(ctx, e); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(againAfter << try):
		}
	}
	p.log.WarnContext(ctx, "event not written", "reason", e.Reason, "err", err)
}
