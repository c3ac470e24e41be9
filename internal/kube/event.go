// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/temper-sched/temper/internal/policy"
)

const (
	// aggregate is how long the same of the same object is one Event, counted.
	aggregate = 10 * time.Minute
	// eventsPerSecond and eventBurst bound what a node in trouble writes about
	// itself, and as much about its pods.
	eventsPerSecond = 0.1
	eventBurst      = 25
)

// Event is something that happened, to be found by kubectl describe.
type Event struct {
	Pod             *policy.Pod // nil: it is about the node
	Reason, Message string
	Warning         bool
}

// recorder knows the Events that further ones are counted in.
type recorder struct {
	ofNode, ofPods flowcontrol.RateLimiter // apart: many pods shall not cost the node its own

	mu   sync.Mutex // held while one is written, so that they stay in order
	sent map[eventKey]*corev1.Event
}

type eventKey struct{ object, reason string }

func newRecorder() *recorder {
	bound := func() flowcontrol.RateLimiter {
		return flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst)
	}
	return &recorder{ofNode: bound(), ofPods: bound(), sent: map[eventKey]*corev1.Event{}}
}

// accepts tells whether e is within the rate, and counts it.
func (r *recorder) accepts(e Event) bool {
	if e.Pod != nil {
		return r.ofPods.TryAccept()
	}
	return r.ofNode.TryAccept()
}

// Event writes an Event. What is beyond the rate is dropped, but counted.
func (c *Client) Event(ctx context.Context, e Event) error {
	r := c.events
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.next(e, c.node, time.Now())
	if !r.accepts(e) {
		c.log.DebugContext(ctx, "event dropped", "reason", e.Reason, "message", e.Message)
		return nil
	}
	err := c.writeEvent(ctx, out)
	if err != nil {
		out.Count-- // who tries again counts it again
		return fmt.Errorf("write event %s of %s %s: %w", e.Reason, out.InvolvedObject.Kind, out.InvolvedObject.Name, err)
	}
	return nil
}

// writeEvent counts up what was written before, unless the server forgot it. What
// the server has and no answer told of was written, too.
func (c *Client) writeEvent(ctx context.Context, e *corev1.Event) error {
	if e.ResourceVersion != "" {
		_, err := c.countUp(ctx, e)
		if !apierrors.IsNotFound(err) {
			return err
		}
		e.ResourceVersion = ""
	}
	written := &corev1.Event{}
	err := c.rest.Post().Namespace(e.Namespace).Resource("events").Timeout(requestTimeout).Body(e).Do(ctx).Into(written)
	if apierrors.IsAlreadyExists(err) {
		written, err = c.countUp(ctx, e)
	}
	e.ResourceVersion = written.ResourceVersion
	return err
}

func (c *Client) countUp(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	written := &corev1.Event{}
	body, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp, "message": e.Message})
	if err != nil {
		return written, err
	}
	err = c.rest.Patch(types.MergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).
		Timeout(requestTimeout).Body(body).Do(ctx).Into(written)
	return written, err
}

// next is the Event that e is, or is counted in.
func (r *recorder) next(e Event, node string, now time.Time) *corev1.Event {
	maps.DeleteFunc(r.sent, func(_ eventKey, old *corev1.Event) bool {
		return now.Sub(old.LastTimestamp.Time) >= aggregate
	})
	key := eventKey{reason: e.Reason}
	if e.Pod != nil {
		key.object = e.Pod.UID
	}
	out, ok := r.sent[key]
	if !ok {
		out = newEvent(e, node, now)
		r.sent[key] = out
	}
	out.Count++
	out.LastTimestamp = metav1.NewTime(now)
	out.Message = clip(e.Message, maxMessage)
	return out
}

// newEvent is in the form that kubectl describe finds: kubelet gives a node's
// Events its name as UID.
func newEvent(e Event, node string, now time.Time) *corev1.Event {
	object := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
	namespace := metav1.NamespaceDefault
	if e.Pod != nil {
		object = corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: types.UID(e.Pod.UID)}
		namespace = e.Pod.Namespace
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	stem := strings.TrimRight(clip(object.Name, 200), ".-")
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", stem, now.UnixNano())},
		InvolvedObject:      object,
		Reason:              e.Reason,
		Type:                kind,
		FirstTimestamp:      metav1.NewTime(now),
		Source:              corev1.EventSource{Component: AgentName, Host: node},
		ReportingController: AgentName,
		ReportingInstance:   node,
	}
}
