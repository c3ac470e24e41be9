// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"strings"
	"sync"

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
	order []*podEntry             // the same, by compare
	node  Node
	own   ownMarks
	feeds struct{ pods, node feedState }
}

// feedState is whether a feed is complete and followed.
type feedState struct{ alive, began bool } // now, and once

// set tells whether that changes anything.
func (f *feedState) set(is bool) bool {
	changed := is != f.alive
	f.alive, f.began = is, f.began || is
	return changed
}

// podEntry is a pod that counts; it never changes.
type podEntry struct {
	object  types.UID
	pod     policy.Pod
	claimed bool // its UID, by an annotation
}

func newView(th tier.Thresholds) *view {
	return &view{thresholds: th, kick: make(chan struct{}, 1), pods: map[types.UID]*podEntry{}}
}

// change runs f alone and has a snapshot made afterwards, if f says that what is
// in one has changed: most of what kubelet writes about a pod is not.
func (v *view) change(f func() bool) {
	v.mu.Lock()
	changed := f()
	v.mu.Unlock()
	if !changed {
		return
	}
	select {
	case v.kick <- struct{}{}:
	default: // one is due anyway
	}
}

// snapshot is false until both feeds were complete once: before, a pod that is
// missing would look like one that is gone. Of one UID it has the pod whose own it
// is, else the oldest: whoever may create pods may claim to mirror any, and shall
// change nothing about it by that.
func (v *view) snapshot() (Snapshot, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.feeds.pods.began || !v.feeds.node.began {
		return Snapshot{}, false
	}
	s := Snapshot{Node: v.node, Connected: v.feeds.pods.alive && v.feeds.node.alive, Pods: make([]policy.Pod, 0, len(v.order))}
	claimed := map[string]bool{}
	for _, e := range v.order {
		if e.claimed {
			owner := v.pods[types.UID(e.pod.UID)]
			if claimed[e.pod.UID] || owner != nil && !owner.claimed {
				continue
			}
			claimed[e.pod.UID] = true
		}
		s.Pods = append(s.Pods, e.pod)
	}
	return s, true
}

// compare orders as policy.Older, and no two as equal.
func (e *podEntry) compare(other *podEntry) int {
	if c := policy.Older(&e.pod, &other.pod); c != 0 {
		return c
	}
	return strings.Compare(string(e.object), string(other.object))
}

// podSink and nodeSink are the view as the feeds see it.
type (
	podSink  struct{ *view }
	nodeSink struct{ *view }
)

func (s podSink) connected(is bool) {
	s.change(func() bool { return s.feeds.pods.set(is) })
}

func (s podSink) replace(all []runtime.Object) {
	s.change(func() bool {
		s.pods, s.order = make(map[types.UID]*podEntry, len(all)), nil
		for _, object := range all {
			s.put(object)
		}
		return true
	})
}

func (s podSink) apply(event watch.Event) {
	s.change(func() bool {
		if p, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Deleted {
			return s.drop(p)
		}
		return s.put(event.Object)
	})
}

// put enters the pod and tells whether that changes anything.
func (s podSink) put(object runtime.Object) bool {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	e := &podEntry{object: p.UID}
	if e.pod, ok = podOf(p, s.thresholds); !ok {
		return s.drop(p)
	}
	_, e.claimed = cgroupUID(p)
	if before, ok := s.pods[p.UID]; ok && before.claimed == e.claimed && before.pod.Equal(e.pod) {
		return false
	}
	s.drop(p)
	s.pods[p.UID] = e
	at, _ := slices.BinarySearchFunc(s.order, e, (*podEntry).compare)
	s.order = slices.Insert(s.order, at, e)
	return true
}

// drop forgets the pod and tells whether it was known.
func (s podSink) drop(p *corev1.Pod) bool {
	e, had := s.pods[p.UID]
	if had {
		delete(s.pods, p.UID)
		at, _ := slices.BinarySearchFunc(s.order, e, (*podEntry).compare)
		s.order = slices.Delete(s.order, at, at+1)
	}
	return had
}

func (s nodeSink) connected(is bool) {
	s.change(func() bool { return s.feeds.node.set(is) })
}

func (s nodeSink) replace(all []runtime.Object) {
	s.change(func() bool {
		s.node, s.own = Node{}, ownMarks{}
		for _, object := range all {
			s.put(object)
		}
		return true
	})
}

func (s nodeSink) apply(event watch.Event) {
	s.change(func() bool {
		before := s.node
		if event.Type == watch.Deleted {
			s.node, s.own = Node{}, ownMarks{}
		} else {
			s.put(event.Object)
		}
		return s.node != before
	})
}

func (s nodeSink) put(object runtime.Object) {
	if n, ok := object.(*corev1.Node); ok {
		s.node = nodeOf(n)
		s.own.take(n)
	}
}
