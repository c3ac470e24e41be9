// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// StaleAfter is how old a node's condition is that nobody looks after any more.
const StaleAfter = 2*heartbeat + time.Minute

// NodeState is what a node's object says of Temper.
type NodeState struct {
	Name, Kernel string
	Engine       string // its label, "" if none
	// Annotated tells of the safe-mode annotation, whatever it says; SafeMode
	// that it asks for it.
	Annotated, SafeMode bool
	Condition           *NodeCondition // nil if none
}

// NodeCondition is a node's condition with its times.
type NodeCondition struct {
	Condition
	Heartbeat, Since time.Time
}

// Touched tells whether Temper left anything on the node's object.
func (n NodeState) Touched() bool { return n.Engine != "" || n.Annotated || n.Condition != nil }

// Nodes returns the nodes that the labels select, all if selector is empty.
func (c *Cluster) Nodes(ctx context.Context, selector string) ([]NodeState, error) {
	var list corev1.NodeList
	if err := c.list(ctx, "/api/v1/nodes", selector, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]NodeState, len(list.Items))
	for i := range list.Items {
		nodes[i] = nodeState(&list.Items[i])
	}
	return nodes, nil
}

func nodeState(n *corev1.Node) NodeState {
	value, annotated := n.Annotations[SafeModeAnnotation]
	state := NodeState{
		Name: n.Name, Kernel: n.Status.NodeInfo.KernelVersion, Engine: n.Labels[EngineLabel],
		Annotated: annotated, SafeMode: asksSafeMode(value),
	}
	for _, c := range n.Status.Conditions {
		if c.Type == ConditionType {
			state.Condition = &NodeCondition{
				Condition: Condition{Ready: c.Status == corev1.ConditionTrue, Reason: c.Reason, Message: c.Message},
				Heartbeat: c.LastHeartbeatTime.Time, Since: c.LastTransitionTime.Time,
			}
		}
	}
	return state
}

// SetSafeMode sets the node's annotation, or removes it.
func (c *Cluster) SetSafeMode(ctx context.Context, node string, on bool) error {
	var value any // null removes
	if on {
		value = "true"
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{SafeModeAnnotation: value}}}
	if err := c.patch(ctx, types.MergePatchType, "/api/v1/nodes/"+node, patch); err != nil {
		return fmt.Errorf("annotate node %s: %w", node, err)
	}
	return nil
}

// CleanNode removes what Temper left on the node's object. An agent that still
// runs puts it back.
func (c *Cluster) CleanNode(ctx context.Context, node string) error {
	path := "/api/v1/nodes/" + node
	condition := map[string]any{"status": map[string]any{"conditions": []any{
		map[string]string{"type": ConditionType, "$patch": "delete"},
	}}}
	marks := map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{EngineLabel: nil},
		"annotations": map[string]any{SafeModeAnnotation: nil},
	}}
	err := errors.Join(
		c.patch(ctx, types.StrategicMergePatchType, path+"/status", condition),
		c.patch(ctx, types.MergePatchType, path, marks),
	)
	if err != nil {
		return fmt.Errorf("clean node %s: %w", node, err)
	}
	return nil
}
