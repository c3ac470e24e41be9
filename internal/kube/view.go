// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
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
	pods  map[types.UID]*podEntry // by the object's UID
	node  Node
	own   ownMarks
	alive struct{ pods, node bool }
	began struct{ pods, node bool } // alive once
}

// podEntry is a pod that counts; it never changes.
type podEntry struct {
	object  types.UID
	pod     policy.Pod
	claimed bool // its UID, by an annotation
	seen    time.Time
}

func newView(th tier.Thresholds) *view {
	return &view{thresholds: th, kick: make(chan struct{}, 1), pods: map[types.UID]*podEntry{}}
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
	entries := slices.SortedFunc(maps.Values(v.pods), (*podEntry).compare)
	s := Snapshot{
		Node: v.node, Connected: v.alive.pods && v.alive.node,
		Pods: make([]policy.Pod, 0, len(entries)), Seen: make(map[string]time.Time, len(entries)),
	}
	for i, e := range entries {
		if i == 0 || entries[i-1].pod.UID != e.pod.UID {
			s.Pods = append(s.Pods, e.pod)
			s.Seen[e.pod.UID] = e.seen
		}
	}
	return s, true
}

// compare orders by UID, and of one UID puts first the pod that has it. Whoever
// may create pods may claim to mirror any, and shall change nothing about it by
// that.
func (e *podEntry) compare(other *podEntry) int {
	if c := strings.Compare(e.pod.UID, other.pod.UID); c != 0 {
		return c
	}
	if e.claimed != other.claimed {
		if other.claimed {
			return -1
		}
		return 1
	}
	return cmp.Or(e.pod.Created.Compare(other.pod.Created), strings.Compare(string(e.object), string(other.object)))
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
		s.pods = make(map[types.UID]*podEntry, len(all))
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
func (s podSink) put(object runtime.Object, old map[types.UID]*podEntry) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	e := &podEntry{object: p.UID, seen: time.Now()}
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
