// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func asks(request, limit string) corev1.Container {
	c := corev1.Container{Name: "c"}
	if request != "" {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}
	}
	if limit != "" {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}
	}
	return c
}

func podWith(qos corev1.PodQOSClass, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}, Status: corev1.PodStatus{QOSClass: qos}}
}

func TestPinnings(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	starting := podWith(corev1.PodQOSGuaranteed)
	starting.Spec.InitContainers = []corev1.Container{asks("2", "2")}
	sidecar := podWith(corev1.PodQOSGuaranteed)
	sidecar.Spec.InitContainers = []corev1.Container{asks("1", "1")}
	sidecar.Spec.InitContainers[0].RestartPolicy = &always
	whole := podWith(corev1.PodQOSGuaranteed, asks("2", "2"))
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}

	cases := map[string]struct {
		pod    *corev1.Pod
		cpus   int64
		whyNot string
	}{
		"whole CPUs of a Guaranteed pod": {podWith(corev1.PodQOSGuaranteed, asks("3", "3")), 3, ""},
		"a fraction":                     {podWith(corev1.PodQOSGuaranteed, asks("1500m", "1500m")), 0, "1.5 CPUs, not a whole number"},
		"less than a CPU":                {podWith(corev1.PodQOSGuaranteed, asks("100m", "100m")), 0, "0.1 CPUs"},
		"Burstable":                      {podWith(corev1.PodQOSBurstable, asks("2", "")), 0, "Burstable, not Guaranteed"},
		"BestEffort":                     {podWith(corev1.PodQOSBestEffort, asks("", "")), 0, "no CPU request"},
		"an init container":              {starting, 0, "an init container"},
		"a sidecar":                      {sidecar, 1, ""},
		"CPUs for the pod as a whole":    {whole, 0, "as a whole"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := pinnings(c.pod)
			if len(got) != 1 || got[0].CPUs != c.cpus || !strings.Contains(got[0].WhyNot, c.whyNot) || (got[0].WhyNot == "") != (c.whyNot == "") {
				t.Errorf("got %+v, want %d CPUs and %q", got, c.cpus, c.whyNot)
			}
		})
	}
}

func TestMilliLimit(t *testing.T) {
	own := podWith(corev1.PodQOSBurstable, asks("1", ""))
	own.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}
	beside := func(init corev1.Container, sidecar bool) *corev1.Pod {
		p := podWith(corev1.PodQOSBurstable, asks("1", "2"))
		if sidecar {
			always := corev1.ContainerRestartPolicyAlways
			init.RestartPolicy = &always
		}
		p.Spec.InitContainers = []corev1.Container{init}
		return p
	}
	cases := map[string]struct {
		pod  *corev1.Pod
		want int64
	}{
		"with a sidecar":    {beside(asks("", "500m"), true), 2500},
		"a sidecar without": {beside(asks("1", ""), true), 0},
		"what runs before":  {beside(asks("", "1"), false), 2000},
		"of all containers": {podWith(corev1.PodQOSBurstable, asks("1", "2"), asks("", "500m")), 2500},
		"one without":       {podWith(corev1.PodQOSBurstable, asks("1", "2"), asks("1", "")), 0},
		"none":              {podWith(corev1.PodQOSBestEffort), 0},
		"the pod's own":     {own, 4000},
	}
	for name, c := range cases {
		if got := milliLimit(c.pod); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
