// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// server is a source that can be away.
type server struct {
	mu      sync.Mutex // virtual time orders nothing for the race detector
	pods    []corev1.Pod
	watcher *watch.FakeWatcher
	away    bool
	curt    bool // it ends watches as soon as they began
	lists   int
	since   []string // the versions that lists were to have at least
	forgot  bool     // it has no such version
}

func (s *server) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	s.since = append(s.since, o.ResourceVersion)
	if s.forgot && o.ResourceVersion != "0" {
		return nil, apierrors.NewTimeoutError("Too large resource version", 1)
	}
	if s.away {
		return nil, errors.New("connection refused")
	}
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: s.pods}, nil
}

func (s *server) watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errors.New("connection refused")
	}
	s.watcher = watch.NewFake()
	if s.curt {
		s.watcher.Stop()
	}
	return s.watcher, nil
}

func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = true
	s.watcher.Stop()
}

func (s *server) comeBack(with corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = false
	s.pods = append(s.pods, with)
}

// pass lets virtual time go by until nothing more happens.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// watching runs f while a view follows the server, in virtual time.
func watching(t *testing.T, s *server, f func(last func() Snapshot)) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(thresholds)
		nodeSink{v}.connected(true)
		var last Snapshot
		ctx, cancel := context.WithCancel(t.Context())
		go newFeed("pods", s, podSink{v}, slog.New(slog.DiscardHandler)).run(ctx)
		go v.publish(ctx, func(s Snapshot) { last = s })
		f(func() Snapshot {
			pass(2 * coalesce)
			return last
		})
		cancel()
		if s.watcher != nil {
			s.watcher.Stop()
		}
		synctest.Wait()
	})
}

func TestFeedSurvivesTheServer(t *testing.T) {
	s := &server{pods: []corev1.Pod{*pod(func(*corev1.Pod) {})}}
	watching(t, s, func(last func() Snapshot) {
		first := last()
		if !first.Connected || len(first.Pods) != 1 {
			t.Fatalf("at first: %+v", first)
		}
		pass(time.Minute)
		s.leave()
		if got := last(); got.Connected || len(got.Pods) != 1 {
			t.Errorf("server away: %+v", got)
		}
		lists := s.asked()
		pass(time.Hour)
		if n := s.asked() - lists; n < 100 || n > 600 {
			t.Errorf("asked %d times in an hour", n)
		}
		s.comeBack(*pod(func(p *corev1.Pod) { p.UID = "bbbb-2" }))
		pass(2 * maxDelay)
		got := last()
		if !got.Connected || len(got.Pods) != 2 {
			t.Errorf("server back: %+v", got)
		}
	})
}

// TestFeedOfACurtServer: watches that end at once, as behind a proxy that does not
// stream, are no reason to list all the time.
func TestFeedOfACurtServer(t *testing.T) {
	s := &server{curt: true}
	watching(t, s, func(last func() Snapshot) {
		last()
		lists := s.asked()
		pass(time.Hour)
		if n := s.asked() - lists; n < 100 || n > 600 {
			t.Errorf("asked %d times in an hour", n)
		}
		s.mu.Lock()
		s.curt = false
		s.mu.Unlock()
		pass(2 * maxDelay)
		if got := last(); !got.Connected {
			t.Error("not connected to one that streams")
		}
		lists = s.asked()
		s.leave()
		pass(2 * firstDelay)
		if s.asked() == lists {
			t.Error("one that streamed is not asked again soon")
		}
	})
}

// TestFeedGoesNotBack: what was heard before the server was away is not heard again
// from one that lags, unless the servers know no such version.
func TestFeedGoesNotBack(t *testing.T) {
	for _, forgot := range []bool{false, true} {
		s := &server{}
		watching(t, s, func(last func() Snapshot) {
			last()
			s.leave()
			pass(time.Minute)
			s.mu.Lock()
			s.forgot = forgot
			s.mu.Unlock()
			s.comeBack(*pod(func(*corev1.Pod) {}))
			pass(4 * maxDelay)
			if got := last(); !got.Connected || len(got.Pods) != 1 {
				t.Errorf("server back: %+v", got)
			}
			want := "7"
			if forgot {
				want = "0"
			}
			if got := s.since[len(s.since)-1]; s.since[0] != "0" || got != want {
				t.Errorf("at last the version %s was asked for, want %s", got, want)
			}
		})
	}
}

func TestFeedGoesOnWhereTheWatchEnded(t *testing.T) {
	s := &server{}
	watching(t, s, func(last func() Snapshot) {
		last()
		pass(watchFor)
		s.watcher.Stop()
		if got := last(); !got.Connected || s.asked() != 1 {
			t.Errorf("connected %v, %d lists", got.Connected, s.asked())
		}
		s.watcher.Add(pod(func(*corev1.Pod) {}))
		if got := last(); len(got.Pods) != 1 {
			t.Errorf("got %+v", got)
		}
		s.watcher.Delete(pod(func(*corev1.Pod) {}))
		if got := last(); len(got.Pods) != 0 {
			t.Errorf("got %+v", got)
		}
		s.watcher.Error(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: 410})
		pass(time.Second)
		if got := last(); !got.Connected || s.asked() != 2 {
			t.Errorf("after an expired watch: connected %v, %d lists", got.Connected, s.asked())
		}
	})
}

// TestPublish: a change is told at once, those that come soon after it together,
// and what changes nothing not at all.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(thresholds)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []time.Duration
		began := time.Now()
		go v.publish(ctx, func(Snapshot) { told = append(told, time.Since(began)) })
		nodeSink{v}.connected(true)
		podSink{v}.replace(nil)
		podSink{v}.connected(true)
		pass(time.Second)
		told, began = nil, time.Now()

		pods := podSink{v}
		say := func(uid types.UID, message string) {
			pods.apply(watch.Event{Type: watch.Modified, Object: pod(func(p *corev1.Pod) { p.UID, p.Status.Message = uid, message })})
			synctest.Wait()
		}
		say("aaaa-1", "")
		say("bbbb-2", "")
		say("cccc-3", "")
		pass(time.Second)
		say("aaaa-1", "pulling")
		pods.apply(watch.Event{Type: watch.Deleted, Object: pod(func(p *corev1.Pod) { p.UID = "dddd-4" })})
		pass(time.Second)
		if want := []time.Duration{0, coalesce}; !slices.Equal(told, want) {
			t.Errorf("told after %v, want %v", told, want)
		}
	})
}

func TestNoSnapshotBeforeTheFirstList(t *testing.T) {
	v := newView(thresholds)
	nodeSink{v}.connected(true)
	if s, ok := v.snapshot(); ok {
		t.Errorf("got %+v", s)
	}
}

func TestOfTwoPodsWithOneUID(t *testing.T) {
	claims := func(name string, age time.Duration) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Name, p.UID = name, "0000-"+p.UID
			p.CreationTimestamp = metav1.NewTime(created.Add(-age))
			p.Annotations[corev1.MirrorPodAnnotationKey] = "aaaa-1"
		})
	}
	younger := claims("younger", 0)
	younger.UID = "cccc-3"
	victim := pod(func(p *corev1.Pod) { p.Name = "victim" })
	for name, test := range map[string]struct {
		pods []runtime.Object
		want string
	}{
		"it is one's own":       {[]runtime.Object{claims("older", time.Hour), victim}, "victim"},
		"both claim to mirror":  {[]runtime.Object{younger, claims("older", time.Hour)}, "older"},
		"it is one's own, late": {[]runtime.Object{victim, younger}, "victim"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(thresholds)
			nodeSink{v}.connected(true)
			podSink{v}.replace(test.pods)
			podSink{v}.connected(true)
			s, _ := v.snapshot()
			if len(s.Pods) != 1 || s.Pods[0].Name != test.want {
				t.Errorf("got %+v, want %s", s.Pods, test.want)
			}
		})
	}
}
