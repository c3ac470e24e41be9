// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the node agent on real Kubernetes: the control plane runs on
// this machine, and one node with kubelet and containerd in a guest.
//
// # The parts
//
// [place] is what host and guest agree on. The command node is the guest's: it
// makes a node of it, and lets the host run commands there. Pods have the
// bridge CNI's network; the API server reaches them and kubelet through a
// tunnel, and they reach the API server at its cluster address, which the
// command node answers instead of kube-proxy.
package e2e
