// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// coalesce is how long after a state the next one comes at the soonest.
const coalesce = 2 * time.Millisecond

// Run watches until ctx ends, also while the API server is away. It calls
// changed with each new state, never twice at a time; changes during a call
// come as one. The first call is when everything was heard once.
func (c *Client) Run(ctx context.Context, changed func(Snapshot)) error {
	pods := newFeed("pods", c.collection("pods", "spec.nodeName", &corev1.PodList{}), podSink{c.view}, c.log)
	node := newFeed("node", c.collection("nodes", "metadata.name", &corev1.NodeList{}), nodeSink{c.view}, c.log)
	var feeds sync.WaitGroup
	feeds.Go(func() { pods.run(ctx) })
	feeds.Go(func() { node.run(ctx) })
	c.view.publish(ctx, changed)
	feeds.Wait()
	return nil
}

func (v *view) publish(ctx context.Context, changed func(Snapshot)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.kick:
		}
		if s, ok := v.snapshot(); ok {
			changed(s)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(coalesce):
		}
	}
}

// collection is the part of a resource that is this node's.
type collection struct {
	*Client
	resource string
	selector string
	empty    runtime.Object // list
}

func (c *Client) collection(resource, field string, empty runtime.Object) collection {
	return collection{c, resource, fields.OneTermEqualSelector(field, c.node).String(), empty}
}

// The feed has its own back-off; client-go's retries would hide for ten seconds
// that the connection is lost.

func (c collection) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.FieldSelector = c.selector
	list := c.empty.DeepCopyObject()
	err := c.rest.Get().Resource(c.resource).VersionedParams(&o, c.params).
		Timeout(requestTimeout).MaxRetries(0).Do(ctx).Into(list)
	return list, err
}

func (c collection) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector = c.selector
	o.Watch = true
	return c.rest.Get().Resource(c.resource).VersionedParams(&o, c.params).MaxRetries(0).Watch(ctx)
}
