// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
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
	if uid, _ := cgroupUID(p); uid == "" || hasEnded(p) {
		return policy.Pod{}, false
	}
	return describe(p, th), true
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// describe puts a pod in the words of the node core.
func describe(p *corev1.Pod, th tier.Thresholds) policy.Pod {
	uid, _ := cgroupUID(p)
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
	}
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

// milliCPU is what the scheduler counts for the pod, and while a resize is not
// granted what kubelet counts. Init containers run before the others, one at a
// time, beside the sidecars that started before them.
func milliCPU(p *corev1.Pod) int64 {
	var granted, grantedInit []corev1.ContainerStatus // that hold instead of the spec
	if awaitsResize(p) {
		if _, ok := p.Status.AllocatedResources[corev1.ResourceCPU]; ok { // the whole sum
			return cpuOf(p.Status.AllocatedResources)
		}
		granted, grantedInit = p.Status.ContainerStatuses, p.Status.InitContainerStatuses
	}
	var running, sidecars, starting int64
	for i := range p.Spec.Containers {
		running = bounded(running + cpuOf(requests(&p.Spec.Containers[i], granted)))
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		own := cpuOf(requests(c, grantedInit))
		if isSidecar(c) {
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

// awaitsResize tells whether the spec is a wish: kubelet has put a resize in
// place off or cannot do it, or has not seen the spec yet, as those tell that
// observe generations.
func awaitsResize(p *corev1.Pod) bool {
	if seen := p.Status.ObservedGeneration; seen != 0 && seen < p.Generation {
		return true
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue
	})
}

// requests are those of the container that kubelet has granted by these
// statuses; those of the spec where they do not say.
func requests(c *corev1.Container, granted []corev1.ContainerStatus) corev1.ResourceList {
	at := slices.IndexFunc(granted, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
	switch {
	case at >= 0 && granted[at].AllocatedResources != nil:
		return granted[at].AllocatedResources
	case at >= 0 && granted[at].Resources != nil: // a resize under way is not in it yet
		return granted[at].Resources.Requests
	}
	return c.Resources.Requests
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

// asksSafeMode takes for a yes whatever is no plain no: who wants a node's
// scheduler off in a hurry shall not fail by a capital letter.
func asksSafeMode(value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "", "false", "off", "no", "0":
		return false
	}
	return true
}

// nodeOf is what the agent needs of its node.
func nodeOf(n *corev1.Node) Node {
	out := Node{
		SafeMode: asksSafeMode(n.Annotations[SafeModeAnnotation]),
		BootID:   clip(n.Status.NodeInfo.BootID, maxWord),
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}
