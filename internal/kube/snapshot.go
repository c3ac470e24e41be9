// SPDX-License-Identifier: Apache-2.0

// Package kube speaks to the Kubernetes API server for one node: it watches the
// node and its pods, and writes the node's condition, label and Events.
package kube

import "github.com/temper-sched/temper/internal/policy"

// Snapshot is what the API server said last about this node. It stays while
// the API server is away.
type Snapshot struct {
	Pods []policy.Pod // without cgroups; only those that are neither Succeeded nor Failed; the oldest first
	Node Node
	// Connected is false while the watches are broken: the rest is old then.
	Connected bool
}

// Node is what the agent needs to know of its own node object.
type Node struct {
	SafeMode bool   // annotated so
	Ready    bool   // kubelet says so
	BootID   string // of the boot that kubelet says so of
}
