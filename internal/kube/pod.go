// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

const (
	// maxMilliCPU is more than any node has; sums of it cannot overflow.
	maxMilliCPU = 1 << 40
	// maxWord is longer than any word that an annotation of ours can be.
	maxWord = 64
)

// podOf is what the node core needs of a pod, and whether it counts: what has
// ended holds no CPU. A pod that is being deleted still runs.
func podOf(p *corev1.Pod, th tier.Thresholds) (policy.Pod, bool) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return policy.Pod{}, false
	}
	uid, _ := cgroupUID(p)
	if uid == "" {
		return policy.Pod{}, false
	}
	var priority int32
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	rank, why := tier.Of(tier.Pod{
		Priority:   priority,
		Class:      clip(p.Spec.PriorityClassName, 253),
		BestEffort: p.Status.QOSClass == corev1.PodQOSBestEffort,
		Annotation: clip(p.Annotations[TierAnnotation], maxWord),
	}, th)
	return policy.Pod{
		UID:       uid,
		Namespace: p.Namespace,
		Name:      p.Name,
		Created:   p.CreationTimestamp.UTC(),
		Tier:      rank,
		Why:       why,
		MilliCPU:  milliCPU(p),
	}, true
}

// cgroupUID is the UID in the name of the pod's cgroup, and whether it is only
// claimed: a static pod has another UID in the API server, whose object merely
// mirrors it.
func cgroupUID(p *corev1.Pod) (uid string, claimed bool) {
	if mirrored, ok := p.Annotations[corev1.MirrorPodAnnotationKey]; ok && isUID(mirrored) {
		return mirrored, true
	}
	if uid := string(p.UID); isUID(uid) {
		return uid, false
	}
	return "", false
}

// isUID holds for what kubelet makes names of cgroups of: UUIDs and hashes.
func isUID(s string) bool {
	return s != "" && len(s) <= maxWord && strings.Trim(s, "0123456789abcdefABCDEF-") == ""
}

// clip bounds what a user wrote.
func clip(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "?")
}

// milliCPU is what the scheduler counts for the pod. Init containers run before
// the others, one at a time, beside the sidecars that started before them.
func milliCPU(p *corev1.Pod) int64 {
	var running, sidecars, starting int64
	for i := range p.Spec.Containers {
		running = bounded(running + cpuOf(p.Spec.Containers[i].Resources.Requests))
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		own := cpuOf(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = bounded(sidecars + own)
			own = 0
		}
		starting = max(starting, sidecars+own)
	}
	total := max(running+sidecars, starting)
	if r := p.Spec.Resources; r != nil {
		if _, ok := r.Requests[corev1.ResourceCPU]; ok {
			total = cpuOf(r.Requests)
		}
	}
	return bounded(total + cpuOf(p.Spec.Overhead))
}

// cpuOf looks at the order of magnitude first: of 1e10100000, which API servers
// take, any exact figure has ten million digits.
func cpuOf(list corev1.ResourceList) int64 {
	q, ok := list[corev1.ResourceCPU]
	if !ok || q.Sign() <= 0 {
		return 0
	}
	switch milli := 1000 * q.AsApproximateFloat64(); {
	case milli >= maxMilliCPU:
		return maxMilliCPU
	case milli < 1:
		return 1
	}
	return q.MilliValue()
}

func bounded(milli int64) int64 { return min(milli, maxMilliCPU) }

// nodeOf is what the agent needs of its node.
func nodeOf(n *corev1.Node) Node {
	out := Node{
		SafeMode: n.Annotations[SafeModeAnnotation] == "true",
		BootID:   clip(n.Status.NodeInfo.BootID, maxWord),
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}
