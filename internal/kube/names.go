// SPDX-License-Identifier: Apache-2.0

package kube

// The names that Temper uses in a cluster. Of the cluster it needs:
//
//	pods         list, watch    with the field selector spec.nodeName=<own>
//	nodes        list, watch    with the field selector metadata.name=<own>
//	nodes        patch          the label of the own node
//	nodes/status patch          the condition of the own node
//	events       create, patch  in the pods' namespaces and "default"
//
// RBAC knows no field selectors and no own node; an admission policy keeps the
// patches to the node that the agent's token is bound to.
const (
	// SafeModeAnnotation on a node takes the node's scheduler off, unless it is
	// empty or says "false", "off", "no" or "0".
	SafeModeAnnotation = "temper.dev/safe-mode"
	// TierAnnotation on a pod lowers its tier.
	TierAnnotation = "temper.dev/tier"
	// EngineLabel on a node says which of the engines below it has.
	EngineLabel = "temper.dev/engine"
	// ConditionType is the node's condition.
	ConditionType = "TemperReady"

	Namespace = "temper-system"
	// AgentName names the DaemonSet, the ServiceAccount and the Events' component.
	AgentName     = "temper-agent"
	AgentSelector = "app.kubernetes.io/name=" + AgentName
)

// What the engine of a node is, as its label says.
const (
	EngineAttached = "attached" // threads run as the plan says
	EngineObserve  = "observe"  // the kernel's own scheduler runs, Temper watches
	EngineSafe     = "safe"     // off until safe mode ends
)

// The reasons of Events.
const (
	EventAttached             = "Attached"
	EventDetached             = "Detached"
	EventEjected              = "Ejected"
	EventSafeModeOn           = "SafeModeOn"
	EventSafeModeOff          = "SafeModeOff"
	EventCriticalOverCapacity = "CriticalOverCapacity" // on the pod that has no fence
	EventForeignScheduler     = "ForeignScheduler"
	EventKernelUnsupported    = "KernelUnsupported"
	EventCannotAttach         = "CannotAttach" // for want of a bpffs or a right, or an attach failed
	EventLimitNotEnforced     = "LimitNotEnforced"
	EventEjectLatched         = "EjectLatched"
)
