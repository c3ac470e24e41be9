// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/temper-sched/temper/internal/policy"
)

func TestConditionAfter(t *testing.T) {
	now := created.Add(time.Hour)
	old := corev1.NodeCondition{
		Type: ConditionType, Status: corev1.ConditionFalse, Reason: "Observing", Message: "m",
		LastHeartbeatTime: metav1.NewTime(now.Add(-time.Minute)), LastTransitionTime: metav1.NewTime(created),
	}
	stale := old
	stale.LastHeartbeatTime = metav1.NewTime(now.Add(-heartbeat))
	ahead := old
	ahead.LastHeartbeatTime = metav1.NewTime(now.AddDate(1, 0, 0))
	for name, test := range map[string]struct {
		old        corev1.NodeCondition
		want       Condition
		differs    bool
		transition time.Time
	}{
		"none before":                  {corev1.NodeCondition{}, Condition{Reason: "Observing", Message: "m"}, true, now},
		"the same":                     {old, Condition{Reason: "Observing", Message: "m"}, false, created},
		"the same, old":                {stale, Condition{Reason: "Observing", Message: "m"}, true, created},
		"of a clock that was set back": {ahead, Condition{Reason: "Observing", Message: "m"}, true, created},
		"another reason":               {old, Condition{Reason: "SafeMode", Message: "m"}, true, created},
		"no message":                   {old, Condition{Reason: "Observing"}, true, created},
		"ready":                        {old, Condition{Ready: true, Reason: "Attached"}, true, now},
	} {
		t.Run(name, func(t *testing.T) {
			next, differs := conditionAfter(test.old, test.want, now)
			if differs != test.differs || !next.LastTransitionTime.Time.Equal(test.transition) {
				t.Errorf("differs %v, since %v; want %v, %v", differs, next.LastTransitionTime, test.differs, test.transition)
			}
			if !next.LastHeartbeatTime.Time.Equal(now) || next.Reason != test.want.Reason || (next.Status == corev1.ConditionTrue) != test.want.Ready {
				t.Errorf("got %+v for %+v", next, test.want)
			}
		})
	}
}

func TestMarksIgnoreWhatIsOlder(t *testing.T) {
	var m ownMarks
	node := func(version, engine string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Labels: map[string]string{EngineLabel: engine}}}
	}
	for _, step := range []struct{ version, engine, want string }{
		{"9", "observe", "observe"},
		{"11", "attached", "attached"},
		{"10", "observe", "attached"}, // a watch that lags
		{"12", "safe", "safe"},
		{"opaque", "observe", "observe"},
	} {
		if m.take(node(step.version, step.engine)); m.engine != step.want {
			t.Errorf("after version %s: %s, want %s", step.version, m.engine, step.want)
		}
	}
}

func TestEventsOfOneKindAreOne(t *testing.T) {
	r := newRecorder()
	pod := &policy.Pod{UID: "aaaa-1", Namespace: "n", Name: strings.Repeat("x", 199) + ".yyy"}
	first := r.next(Event{Reason: EventEjected, Message: "a"}, "n1", created)
	again := r.next(Event{Reason: EventEjected, Message: "b"}, "n1", created.Add(time.Minute))
	if first != again || again.Count != 2 || again.Message != "b" || !again.FirstTimestamp.Time.Equal(created) {
		t.Errorf("got %+v", again)
	}
	ofPod := r.next(Event{Pod: pod, Reason: EventEjected}, "n1", created.Add(time.Minute))
	if ofPod == first || ofPod.Namespace != "n" || ofPod.InvolvedObject.Kind != "Pod" || len(ofPod.Name) > 253 || strings.Contains(ofPod.Name, "..") {
		t.Errorf("got %+v", ofPod)
	}
	if other := r.next(Event{Reason: EventAttached}, "n1", created.Add(time.Minute)); other == first {
		t.Error("another reason was counted in the first")
	}
	later := r.next(Event{Reason: EventEjected}, "n1", created.Add(time.Minute+aggregate))
	if later == first || later.Count != 1 || len(r.sent) != 1 {
		t.Errorf("after %v: %+v of %d", aggregate, later, len(r.sent))
	}
}
