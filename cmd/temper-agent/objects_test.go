// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/kube"
)

const nodeName = "node-1"

// podSpec is what a test says of a pod.
type podSpec struct {
	name        string
	uid         string
	priority    int
	class       string // of priority
	qos         string // Burstable if empty
	milliCPU    int    // requested
	annotations map[string]string
}

func (s podSpec) quality() string {
	if s.qos == "" {
		return "Burstable"
	}
	return s.qos
}

func testUID(n int) string { return fmt.Sprintf("00000000-1111-4222-8333-%012x", n) }

func podObject(s podSpec) object {
	annotations := object{}
	for key, value := range s.annotations {
		annotations[key] = value
	}
	requests := object{}
	if s.milliCPU > 0 {
		requests["cpu"] = fmt.Sprintf("%dm", s.milliCPU)
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": s.name, "namespace": "default", "uid": s.uid, "annotations": annotations,
			"creationTimestamp": time.Now().UTC().Format(time.RFC3339),
		},
		"spec": object{
			"nodeName": nodeName, "priority": s.priority, "priorityClassName": s.class,
			"containers": []any{object{"name": "main", "image": "none", "resources": object{"requests": requests}}},
		},
		"status": object{"phase": "Running", "qosClass": s.quality()},
	}
}

// nodeObject is a node that kubelet has made ready in that boot.
func nodeObject(boot string) object {
	return object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": nodeName, "uid": nodeName, "creationTimestamp": "2026-01-01T00:00:00Z"},
		"status": object{
			"nodeInfo":   object{"bootID": boot},
			"conditions": []any{object{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
		},
	}
}

// condition is the node's that Temper writes, empty if there is none.
func condition(a *fakeAPI) object {
	conditions, _ := inner(clone(a.get("nodes/"+nodeName)), "status")["conditions"].([]any)
	for _, c := range conditions {
		if own, _ := c.(object); own["type"] == kube.ConditionType {
			return own
		}
	}
	return object{}
}

func engineLabel(a *fakeAPI) string {
	label, _ := inner(clone(a.get("nodes/"+nodeName)), "metadata", "labels")[kube.EngineLabel].(string)
	return label
}

func statusOf(t *testing.T, url string) int {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}
