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
//
// # What it needs
//
// CPU time: the guest's clock is this host's. A host so busy that the guest's
// agent does not run for half a minute has the dead-man detach the scheduler,
// as it should, and parts that want it attached throughout fail. Nothing of a
// container runtime's AppArmor profile is in force: the guest has no parser.
//
// # The record
//
// TestRecord measures memcached on that node and leaves records of the
// laboratory's. It needs figures and no speed: its guest is in virtual time, so
// that it may run beside anything. docs/laboratory.md says what it can claim.
package e2e
