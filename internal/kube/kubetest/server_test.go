// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// started is a server for the length of the test.
func started(t *testing.T) *Server {
	t.Helper()
	a := New()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a
}

// TestServer holds the server to what the real client makes of it.
func TestServer(t *testing.T) {
	api := started(t)
	api.Put(NodePath, Node("boot"))
	api.Put("pods/1", Pod{Name: "web", UID: UID(1), Priority: 1_000_000, MilliCPU: 1500}.Object())
	elsewhere := Pod{Name: "other", UID: UID(9)}.Object()
	Inner(elsewhere, "spec")["nodeName"] = "another"
	api.Put("pods/9", elsewhere)

	kubeconfig, err := api.Kubeconfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.New(kube.Config{
		Kubeconfig: kubeconfig, NodeName: NodeName,
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
				t.Fatalf("never %s; %d requests", what, api.Asked())
			}
		}
	}
	next("lists", func(s kube.Snapshot) bool {
		return s.Connected && len(s.Pods) == 1 && s.Pods[0].Tier == tier.Critical && s.Pods[0].MilliCPU == 1500 && s.Node.Ready && s.Node.BootID == "boot"
	})
	api.Put("pods/2", Pod{Name: "job", UID: UID(2), Priority: -1}.Object())
	next("watches", func(s kube.Snapshot) bool { return len(s.Pods) == 2 })

	if err := client.SetCondition(ctx, kube.Condition{Ready: true, Reason: "Attached", Message: "fine"}); err != nil {
		t.Error(err)
	}
	if err := client.SetEngine(ctx, kube.EngineAttached); err != nil {
		t.Error(err)
	}
	label := Inner(api.Get(NodePath), "metadata", "labels")[kube.EngineLabel]
	if c := api.Condition(); c["status"] != "True" || c["reason"] != "Attached" || label != kube.EngineAttached {
		t.Errorf("the node has the condition %v and the label %q", c, label)
	}
	pod := policy.Pod{UID: UID(1), Namespace: "default", Name: "web"}
	for range 2 {
		if err := client.Event(ctx, kube.Event{Pod: &pod, Reason: kube.EventCriticalOverCapacity, Message: "no room", Warning: true}); err != nil {
			t.Error(err)
		}
	}
	if said := api.Said(kube.EventCriticalOverCapacity); len(said) != 1 || said[0].Count != 2 || said[0].Name != "web" || said[0].Type != "Warning" || said[0].Message != "no room" {
		t.Errorf("events = %+v", said)
	}

	api.Stop()
	next("is away", func(s kube.Snapshot) bool { return !s.Connected && len(s.Pods) == 2 })
	api.Drop("pods/2")
	if err := api.Start(); err != nil {
		t.Fatal(err)
	}
	next("is back", func(s kube.Snapshot) bool { return s.Connected && len(s.Pods) == 1 })
}

// Asking for all nodes' pods, or for what no role allows, is refused.
func TestServerRefuses(t *testing.T) {
	api := started(t)
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes?fieldSelector=spec.x%3Dy", "/api/v1/secrets"} {
		response, err := http.Get("http://" + api.address + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", path, response.StatusCode)
		}
	}
}
