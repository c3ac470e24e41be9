// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"fmt"
	"time"
)

// NodeName is the one node's.
const NodeName = "node-1"

// NodePath is where its object is.
const NodePath = "nodes/" + NodeName

// Pod is what one says of a pod.
type Pod struct {
	Name        string
	UID         string
	Priority    int
	Class       string // of priority
	QoS         string // Burstable if empty
	MilliCPU    int    // requested
	Annotations map[string]string
}

// UID returns the n-th of many.
func UID(n int) string { return fmt.Sprintf("00000000-1111-4222-8333-%012x", n) }

// Quality is the pod's QoS class.
func (p Pod) Quality() string {
	if p.QoS == "" {
		return "Burstable"
	}
	return p.QoS
}

// Path is where the pod's object is.
func (p Pod) Path() string { return "pods/" + p.UID }

// Object is the pod as the API has it, on the one node.
func (p Pod) Object() Object {
	annotations := Object{}
	for key, value := range p.Annotations {
		annotations[key] = value
	}
	requests := Object{}
	if p.MilliCPU > 0 {
		requests["cpu"] = fmt.Sprintf("%dm", p.MilliCPU)
	}
	return Object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": Object{
			"name": p.Name, "namespace": "default", "uid": p.UID, "annotations": annotations,
			"creationTimestamp": time.Now().UTC().Format(time.RFC3339),
		},
		"spec": Object{
			"nodeName": NodeName, "priority": p.Priority, "priorityClassName": p.Class,
			"containers": []any{Object{"name": "main", "image": "none", "resources": Object{"requests": requests}}},
		},
		"status": Object{"phase": "Running", "qosClass": p.Quality()},
	}
}

// Node is the node's object, made ready by kubelet in that boot.
func Node(boot string) Object {
	return Object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": Object{"name": NodeName, "uid": NodeName, "creationTimestamp": "2026-01-01T00:00:00Z"},
		"status": Object{
			"nodeInfo":   Object{"bootID": boot},
			"conditions": []any{Object{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
		},
	}
}

// conditionType is internal/kube's, which this package does not import: its
// client's libraries would come along.
const conditionType = "TemperReady"

// Condition is the node's that Temper writes, empty if there is none.
func (a *Server) Condition() Object {
	conditions, _ := Inner(a.Get(NodePath), "status")["conditions"].([]any)
	for _, c := range conditions {
		if own, _ := c.(Object); own["type"] == conditionType {
			return own
		}
	}
	return Object{}
}
