// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
)

// refusing is an API server that lets nobody write, until it does.
type refusing struct {
	Cluster
	mu     sync.Mutex // virtual time orders nothing for the race detector
	allows bool
	tries  int
}

func (r *refusing) SetCondition(context.Context, kube.Condition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.allows {
		return nil
	}
	return errors.New("forbidden")
}

func (r *refusing) SetEngine(context.Context, string) error { return nil }

// TestRefusedMarksAreTriedLess: every node's agent does this at the same time. What
// is new is tried at once.
func TestRefusedMarksAreTriedLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{}
		p := newPublisher(r, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go p.run(ctx)
		p.set(mark{engine: kube.EngineObserve})
		expect := func(after time.Duration, least, most int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.tries < least || r.tries > most {
				t.Errorf("%d tries within %v, want %d to %d", r.tries, after, least, most)
			}
			r.tries = 0
		}
		expect(1500*time.Millisecond, 2, 2)
		expect(10*time.Minute, 50, 70)
		p.set(mark{engine: kube.EngineSafe})
		expect(100*time.Millisecond, 1, 1)
		allow := func(is bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.allows = is
		}
		allow(true)
		expect(confirmEvery, 1, 1)
		allow(false)
		expect(confirmEvery, 1, 1)
		expect(1500*time.Millisecond, 1, 1)
	})
}

// busy is an API server that takes a second for an Event.
type busy struct {
	Cluster
	mu     sync.Mutex
	events []string
}

func (b *busy) Event(_ context.Context, e kube.Event) error {
	time.Sleep(time.Second)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e.Reason)
	return nil
}

// TestEventsOfManyPodsWait for those of the node, and cost it none.
func TestEventsOfManyPodsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{}
		p := newPublisher(b, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go p.run(ctx)
		for range 2 * maxNews {
			p.say(kube.Event{Pod: &policy.Pod{}, Reason: kube.EventCriticalOverCapacity})
		}
		p.say(kube.Event{Reason: kube.EventEjected})
		p.say(kube.Event{Reason: kube.EventAttached})
		after := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.Clone(b.events)
		}
		first := after(4 * time.Second)
		if at := slices.Index(first, kube.EventEjected); at < 0 || at > 1 || !slices.Contains(first, kube.EventAttached) {
			t.Errorf("after 4 s: %v", first)
		}
		if n := len(after(time.Hour)); n < maxNews || n > maxNews+3 {
			t.Errorf("%d Events of pods and of the node", n)
		}
	})
}
