// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// TestFakeAPI holds the fake to what the real client makes of it.
func TestFakeAPI(t *testing.T) {
	api := newFakeAPI(t)
	api.put("nodes/"+nodeName, nodeObject("boot"))
	api.put("pods/1", podObject(podSpec{name: "web", uid: testUID(1), priority: 1_000_000, milliCPU: 1500}))
	elsewhere := podObject(podSpec{name: "other", uid: testUID(9)})
	inner(elsewhere, "spec")["nodeName"] = "another"
	api.put("pods/9", elsewhere)

	client, err := kube.New(kube.Config{
		Kubeconfig: api.kubeconfig(t), NodeName: nodeName,
		Thresholds: tier.DefaultThresholds(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan kube.Snapshot, 100)
	ended := make(chan error)
	go func() { ended <- client.Run(ctx, func(s kube.Snapshot) { seen <- s }) }()
	t.Cleanup(func() { cancel(); <-ended })
	next := func(what string, holds func(kube.Snapshot) bool) {
		t.Helper()
		for timeout := time.After(30 * time.Second); ; {
			select {
			case s := <-seen:
				if holds(s) {
					return
				}
			case <-timeout:
				t.Fatalf("never %s; %d requests", what, api.asked())
			}
		}
	}
	next("lists", func(s kube.Snapshot) bool {
		return s.Connected && len(s.Pods) == 1 && s.Pods[0].Tier == tier.Critical && s.Pods[0].MilliCPU == 1500 && s.Node.Ready && s.Node.BootID == "boot"
	})
	api.put("pods/2", podObject(podSpec{name: "job", uid: testUID(2), priority: -1}))
	next("watches", func(s kube.Snapshot) bool { return len(s.Pods) == 2 })

	if err := client.SetCondition(ctx, kube.Condition{Ready: true, Reason: "Attached", Message: "fine"}); err != nil {
		t.Error(err)
	}
	if err := client.SetEngine(ctx, kube.EngineAttached); err != nil {
		t.Error(err)
	}
	if c, label := condition(api), engineLabel(api); c["status"] != "True" || c["reason"] != "Attached" || label != kube.EngineAttached {
		t.Errorf("the node has the condition %v and the label %q", c, label)
	}
	pod := policy.Pod{UID: testUID(1), Namespace: "default", Name: "web"}
	for range 2 {
		if err := client.Event(ctx, kube.Event{Pod: &pod, Reason: kube.EventCriticalOverCapacity, Message: "no room", Warning: true}); err != nil {
			t.Error(err)
		}
	}
	if said := api.said(kube.EventCriticalOverCapacity); len(said) != 1 || said[0].Count != 2 || said[0].Name != "web" || said[0].Type != "Warning" || said[0].Message != "no room" {
		t.Errorf("events = %+v", said)
	}

	api.stop()
	next("is away", func(s kube.Snapshot) bool { return !s.Connected && len(s.Pods) == 2 })
	api.drop("pods/2")
	api.start(t)
	next("is back", func(s kube.Snapshot) bool { return s.Connected && len(s.Pods) == 1 })
}

// Asking for all nodes' pods, or for what no role allows, is refused.
func TestFakeAPIRefuses(t *testing.T) {
	api := newFakeAPI(t)
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes?fieldSelector=spec.x%3Dy", "/api/v1/secrets"} {
		if code := statusOf(t, "http://"+api.address+path); code != 403 {
			t.Errorf("%s: %d, want 403", path, code)
		}
	}
}
