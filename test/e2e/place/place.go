// SPDX-License-Identifier: Apache-2.0

// Package place holds what the two sides of the end-to-end test agree on: the
// test on the host and the command node in the guest.
package place

// The node's names and addresses. The network is QEMU's own.
const (
	NodeName = "node-1"
	NodeIP   = "10.0.2.15"
	HostIP   = "10.0.2.2" // leads to the host's loopback
	Port     = "7000"     // of the command node
)

// Files in the guest.
const (
	Kubelet       = "/usr/local/bin/kubelet"
	Lab           = "/usr/local/bin/temper-lab-node"
	KubeletConfig = "/etc/kubelet/config.yaml"
	Kubeconfig    = "/etc/kubelet/kubeconfig"
	Images        = "/images"
	Modules       = "/lib/modules"
	Logs          = "/run/log"
)

// Busy is the name of the process that keeps virtual time from leaping.
const Busy = "busy"

// ErrorHeader says how a command failed.
const ErrorHeader = "Temper-Error"
