// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// view is what both feeds said last, and what was written since.
type view struct {
	thresholds tier.Thresholds
	kick       chan struct{} // has an element when something may have changed

	mu    sync.Mutex
	pods  map[types.UID]podEntry // by the object's UID
	node  Node
	own   ownMarks
	alive struct{ pods, node bool }
	began struct{ pods, node bool } // alive once
}

// podEntry is a pod that counts.
type podEntry struct {
	pod     policy.Pod
	claimed bool // its UID, by an annotation
	seen    time.Time
}

func newView(th tier.Thresholds) *view {
	return &view{thresholds: th, kick: make(chan struct{}, 1), pods: map[types.UID]podEntry{}}
}

// change runs f alone and has a snapshot made afterwards.
func (v *view) change(f func()) {
	v.mu.Lock()
	f()
	v.mu.Unlock()
	select {
	case v.kick <- struct{}{}:
	default: // one is due anyway
	}
}

// snapshot is false until both feeds were complete once: before, a pod that is
// missing would look like one that is gone.
func (v *view) snapshot() (Snapshot, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.began.pods || !v.began.node {
		return Snapshot{}, false
	}
	best := map[string]podEntry{}
	for _, id := range slices.Sorted(maps.Keys(v.pods)) {
		e := v.pods[id]
		if other, ok := best[e.pod.UID]; !ok || e.before(other) {
			best[e.pod.UID] = e
		}
	}
	s := Snapshot{Node: v.node, Connected: v.alive.pods && v.alive.node, Seen: make(map[string]time.Time, len(best))}
	for uid, e := range best {
		s.Pods = append(s.Pods, e.pod)
		s.Seen[uid] = e.seen
	}
	slices.SortFunc(s.Pods, func(a, b policy.Pod) int { return strings.Compare(a.UID, b.UID) })
	return s, true
}

// before decides between two pods of one UID. Whoever may create pods may claim
// to mirror any, and shall change nothing about it by that.
func (e podEntry) before(other podEntry) bool {
	if e.claimed != other.claimed {
		return other.claimed
	}
	return e.pod.Created.Before(other.pod.Created)
}

// same tells whether nobody needs to hear of b after a.
func same(a, b Snapshot) bool {
	return a.Connected == b.Connected && a.Node == b.Node && reflect.DeepEqual(a.Pods, b.Pods)
}

// podSink and nodeSink are the view as the feeds see it.
type (
	podSink  struct{ *view }
	nodeSink struct{ *view }
)

func (s podSink) connected(is bool) {
	s.change(func() {
		s.alive.pods = is
		s.began.pods = s.began.pods || is
	})
}

func (s podSink) replace(all []runtime.Object) {
	s.change(func() {
		old := s.pods
		s.pods = make(map[types.UID]podEntry, len(all))
		for _, object := range all {
			s.put(object, old)
		}
	})
}

func (s podSink) apply(event watch.Event) {
	s.change(func() {
		if p, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Deleted {
			delete(s.pods, p.UID)
			return
		}
		s.put(event.Object, s.pods)
	})
}

// put enters the pod as seen first when old says.
func (s podSink) put(object runtime.Object, old map[types.UID]podEntry) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	e := podEntry{seen: time.Now()}
	if before, ok := old[p.UID]; ok {
		e.seen = before.seen
	}
	if e.pod, ok = podOf(p, s.thresholds); !ok {
		delete(s.pods, p.UID)
		return
	}
	_, e.claimed = cgroupUID(p)
	s.pods[p.UID] = e
}

func (s nodeSink) connected(is bool) {
	s.change(func() {
		s.alive.node = is
		s.began.node = s.began.node || is
	})
}

func (s nodeSink) replace(all []runtime.Object) {
	s.change(func() {
		s.node, s.own = Node{}, ownMarks{}
		for _, object := range all {
			s.put(object)
		}
	})
}

func (s nodeSink) apply(event watch.Event) {
	s.change(func() {
		if event.Type == watch.Deleted {
			s.node, s.own = Node{}, ownMarks{}
			return
		}
		s.put(event.Object)
	})
}

func (s nodeSink) put(object runtime.Object) {
	if n, ok := object.(*corev1.Node); ok {
		s.node = nodeOf(n)
		s.own.take(n)
	}
}
