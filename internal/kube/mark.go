// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// heartbeat is how old the condition becomes while nothing changes.
	heartbeat = 5 * time.Minute
	// maxMessage bounds what is written about an error of somebody else's.
	maxMessage = 1024
)

// Condition is what the node's condition says.
type Condition struct {
	Ready           bool
	Reason, Message string
}

// ownMarks are the parts of the node object that are ours.
type ownMarks struct {
	known     bool
	version   string
	condition corev1.NodeCondition // its type is empty if there is none
	engine    string
}

// take reads them from the node. A watch may bring what is older than the
// answer to a patch.
func (m *ownMarks) take(n *corev1.Node) {
	if m.known && older(n.ResourceVersion, m.version) {
		return
	}
	*m = ownMarks{known: true, version: n.ResourceVersion, engine: n.Labels[EngineLabel]}
	for _, c := range n.Status.Conditions {
		if c.Type == ConditionType {
			m.condition = c
		}
	}
}

// older holds for versions that compare, as those of all current servers do.
func older(a, b string) bool {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && x < y
}

// SetCondition makes the node's condition say so. It writes what differs, and a
// heartbeat when the last is minutes old: it may be called at any rate.
func (c *Client) SetCondition(ctx context.Context, want Condition) error {
	m := c.marks()
	if !m.known {
		return fmt.Errorf("set condition of node %s: the node is not known yet", c.node)
	}
	next, differs := conditionAfter(m.condition, want, time.Now())
	if !differs {
		return nil
	}
	// A list of conditions is merged by type, and one by its fields: an empty
	// message left out would leave the old one there.
	patch := map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": next.Type, "status": next.Status, "reason": next.Reason, "message": next.Message,
		"lastHeartbeatTime": next.LastHeartbeatTime, "lastTransitionTime": next.LastTransitionTime,
	}}}}
	if err := c.patchNode(ctx, types.StrategicMergePatchType, patch, "status"); err != nil {
		return fmt.Errorf("set condition of node %s: %w", c.node, err)
	}
	return nil
}

// conditionAfter is the condition that follows old, and whether to write it.
func conditionAfter(old corev1.NodeCondition, want Condition, now time.Time) (corev1.NodeCondition, bool) {
	next := corev1.NodeCondition{
		Type:               ConditionType,
		Status:             corev1.ConditionFalse,
		Reason:             want.Reason,
		Message:            clip(want.Message, maxMessage),
		LastHeartbeatTime:  metav1.NewTime(now),
		LastTransitionTime: metav1.NewTime(now),
	}
	if want.Ready {
		next.Status = corev1.ConditionTrue
	}
	if old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	unchanged := old.Status == next.Status && old.Reason == next.Reason && old.Message == next.Message
	age := now.Sub(old.LastHeartbeatTime.Time) // below 0 once the clock was set back
	return next, !unchanged || age < 0 || age >= heartbeat
}

// SetEngine makes the node's label say which engine it has.
func (c *Client) SetEngine(ctx context.Context, engine string) error {
	m := c.marks()
	if m.known && m.engine == engine {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]string{EngineLabel: engine}}}
	if err := c.patchNode(ctx, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("label node %s %s: %w", c.node, engine, err)
	}
	return nil
}

func (c *Client) marks() ownMarks {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	return c.view.own
}

func (c *Client) patchNode(ctx context.Context, kind types.PatchType, patch any, subresources ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	node := &corev1.Node{}
	err = c.rest.Patch(kind).Resource("nodes").Name(c.node).SubResource(subresources...).
		Timeout(requestTimeout).Body(body).Do(ctx).Into(node)
	if err == nil {
		c.view.mu.Lock()
		c.view.own.take(node)
		c.view.mu.Unlock()
	}
	return err
}
