// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// agentPort is where agents listen that declare no port.
const agentPort = 9464

type podList struct {
	Items []corev1.Pod `json:"items"`
}

func agentOf(p *corev1.Pod) Agent {
	a := Agent{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Phase: string(p.Status.Phase), port: agentPort}
	if len(p.Spec.Containers) > 0 {
		c := p.Spec.Containers[0]
		a.Image = c.Image
		if len(c.Ports) > 0 {
			a.port = int(c.Ports[0].ContainerPort)
		}
	}
	a.Ready = p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return a
}

// PodState is what a pod's object says.
type PodState struct {
	policy.Pod
	Node, Phase, QOS string
	Ended            bool
	// MilliLimit is what its containers may use together, sidecars too, in
	// thousandths of a CPU; 0 if one of them has no limit.
	MilliLimit int64
	Containers []Pinning
}

// Pinning is whether kubelet's static CPU manager would give a container CPUs of
// its own.
type Pinning struct {
	Container string `json:"container"`
	Init      bool   `json:"init,omitempty"`
	CPUs      int64  `json:"cpus"` // of its own, 0: none
	WhyNot    string `json:"why_not,omitempty"`
}

// Pod returns a pod, its tier by these thresholds.
func (c *Cluster) Pod(ctx context.Context, namespace, name string, th tier.Thresholds) (PodState, error) {
	var p corev1.Pod
	if err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/pods/"+name, &p); err != nil {
		return PodState{}, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return podState(&p, th), nil
}

// PodNames returns the names of a namespace's pods.
func (c *Cluster) PodNames(ctx context.Context, namespace string) ([]string, error) {
	var pods podList
	if err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/pods", &pods); err != nil {
		return nil, fmt.Errorf("list pods in namespace %s: %w", namespace, err)
	}
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return names, nil
}

func podState(p *corev1.Pod, th tier.Thresholds) PodState {
	return PodState{
		Pod:  describe(p, th),
		Node: p.Spec.NodeName, Phase: string(p.Status.Phase), QOS: string(p.Status.QOSClass), Ended: hasEnded(p),
		MilliLimit: milliLimit(p),
		Containers: pinnings(p),
	}
}

func milliLimit(p *corev1.Pod) int64 {
	if r := p.Spec.Resources; r != nil && cpuOf(r.Limits) > 0 {
		return cpuOf(r.Limits)
	}
	var sum int64
	sidecars := slices.DeleteFunc(slices.Clone(p.Spec.InitContainers), func(c corev1.Container) bool { return !isSidecar(&c) })
	for _, c := range slices.Concat(p.Spec.Containers, sidecars) {
		limit := cpuOf(c.Resources.Limits)
		if limit == 0 {
			return 0
		}
		sum += limit
	}
	return sum
}

// isSidecar tells an init container that runs beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func pinnings(p *corev1.Pod) []Pinning {
	var out []Pinning
	for i := range p.Spec.InitContainers {
		out = append(out, pinningOf(p, &p.Spec.InitContainers[i], true))
	}
	for i := range p.Spec.Containers {
		out = append(out, pinningOf(p, &p.Spec.Containers[i], false))
	}
	return out
}

// pinningOf follows kubelet's static policy: whole CPUs, asked for by a
// container of a Guaranteed pod.
func pinningOf(p *corev1.Pod, c *corev1.Container, init bool) Pinning {
	out := Pinning{Container: c.Name, Init: init}
	milli := cpuOf(c.Resources.Requests)
	switch {
	case p.Spec.Resources != nil && cpuOf(p.Spec.Resources.Requests) > 0:
		out.WhyNot = "CPUs are requested for the pod as a whole"
	case milli == 0:
		out.WhyNot = "no CPU request"
	case p.Status.QOSClass != corev1.PodQOSGuaranteed:
		out.WhyNot = fmt.Sprintf("the pod is %s, not Guaranteed: every container needs requests equal to its limits", p.Status.QOSClass)
	case milli%1000 != 0:
		out.WhyNot = fmt.Sprintf("it requests %g CPUs, not a whole number", float64(milli)/1000)
	case init && !isSidecar(c):
		out.WhyNot = "an init container gives them back to the containers that follow"
	default:
		out.CPUs = milli / 1000
	}
	return out
}
