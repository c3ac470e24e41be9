// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

var (
	thresholds = tier.Thresholds{Critical: 1_000_000}
	created    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hash       = strings.Repeat("0123456789abcdef", 2)
)

// pod is a plain pod, changed.
func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: "aaaa-1", Namespace: "n", Name: "p", CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{},
	}}
	p.Status.QOSClass = corev1.PodQOSBurstable
	change(p)
	return p
}

// cpu is a container that requests as much; a sidecar if it restarts.
func cpu(quantity string, sidecar bool) corev1.Container {
	c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: cpuList(quantity)}}
	if sidecar {
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
	}
	return c
}

func cpuList(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
}

func TestPodOf(t *testing.T) {
	critical := int32(1_000_000)
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   policy.Pod // beside what all have; Why is tier's business
	}{
		"plain":       {func(*corev1.Pod) {}, policy.Pod{UID: "aaaa-1", Tier: tier.Standard}},
		"critical":    {func(p *corev1.Pod) { p.Spec.Priority = &critical }, policy.Pod{UID: "aaaa-1", Tier: tier.Critical}},
		"best effort": {func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }, policy.Pod{UID: "aaaa-1", Tier: tier.Background}},
		"lowered": {func(p *corev1.Pod) {
			p.Spec.Priority = &critical
			p.Annotations[TierAnnotation] = "background"
		}, policy.Pod{UID: "aaaa-1", Tier: tier.Background}},
		"being deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: created} }, policy.Pod{UID: "aaaa-1", Tier: tier.Standard}},
		"static":        {func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = hash }, policy.Pod{UID: hash, Tier: tier.Standard}},
		"claims to mirror a path": {
			func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "../../x" },
			policy.Pod{UID: "aaaa-1", Tier: tier.Standard},
		},
		"succeeded": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, policy.Pod{}},
		"failed":    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, policy.Pod{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, counts := podOf(pod(test.change), thresholds)
			if counts != (test.want.UID != "") {
				t.Fatalf("counts: %v", counts)
			}
			if counts {
				test.want.Namespace, test.want.Name, test.want.Created, test.want.Why = "n", "p", created, got.Why
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMilliCPU(t *testing.T) {
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want int64
	}{
		"nothing":         {corev1.PodSpec{Containers: []corev1.Container{{}}}, 0},
		"sum":             {corev1.PodSpec{Containers: []corev1.Container{cpu("1", false), cpu("250m", false)}}, 1250},
		"rounded up":      {corev1.PodSpec{Containers: []corev1.Container{cpu("100u", false)}}, 1},
		"larger init":     {corev1.PodSpec{Containers: []corev1.Container{cpu("1", false)}, InitContainers: []corev1.Container{cpu("2", false), cpu("3", false)}}, 3000},
		"smaller init":    {corev1.PodSpec{Containers: []corev1.Container{cpu("4", false)}, InitContainers: []corev1.Container{cpu("3", false)}}, 4000},
		"sidecar":         {corev1.PodSpec{Containers: []corev1.Container{cpu("1", false)}, InitContainers: []corev1.Container{cpu("500m", true)}}, 1500},
		"init after it":   {corev1.PodSpec{Containers: []corev1.Container{cpu("1", false)}, InitContainers: []corev1.Container{cpu("500m", true), cpu("2", false)}}, 2500},
		"init before it":  {corev1.PodSpec{Containers: []corev1.Container{cpu("1", false)}, InitContainers: []corev1.Container{cpu("2", false), cpu("500m", true)}}, 2000},
		"of the pod":      {corev1.PodSpec{Containers: []corev1.Container{cpu("1", false)}, Resources: &corev1.ResourceRequirements{Requests: cpuList("3")}}, 3000},
		"overhead":        {corev1.PodSpec{Containers: []corev1.Container{cpu("1", false)}, Overhead: cpuList("100m")}, 1100},
		"negative":        {corev1.PodSpec{Containers: []corev1.Container{cpu("-5", false), cpu("1", false)}}, 1000},
		"absurd":          {corev1.PodSpec{Containers: []corev1.Container{cpu("9223372036854775807", false), cpu("1e30", false)}}, maxMilliCPU},
		"no figure ends":  {corev1.PodSpec{Containers: []corev1.Container{cpu("1e2147483647", false)}}, maxMilliCPU},
		"nothing, often":  {corev1.PodSpec{Containers: []corev1.Container{cpu("0e2147483647", false)}}, 0},
		"absurd sidecars": {corev1.PodSpec{InitContainers: []corev1.Container{cpu("1e18", true), cpu("1e18", true)}, Overhead: cpuList("1e18")}, maxMilliCPU},
	} {
		t.Run(name, func(t *testing.T) {
			if got := milliCPU(&corev1.Pod{Spec: test.spec}); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// named is a container, and its status that says what kubelet granted and what
// is in force of that; "" says nothing.
func named(name string, wish corev1.Container, granted, enacted string) (corev1.Container, corev1.ContainerStatus) {
	wish.Name = name
	status := corev1.ContainerStatus{Name: name}
	if granted != "" {
		status.AllocatedResources = cpuList(granted)
	}
	if enacted != "" {
		status.Resources = &corev1.ResourceRequirements{Requests: cpuList(enacted)}
	}
	return wish, status
}

// resized is a pod with one container whose resize waits.
func resized(wish, granted, enacted string) *corev1.Pod {
	c, status := named("c", cpu(wish, false), granted, enacted)
	return pod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{c}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred}}
	})
}

func TestMilliCPUOfAResize(t *testing.T) {
	for name, test := range map[string]struct {
		wish, granted, enacted string
		change                 func(*corev1.Pod)
		want                   int64
	}{
		"deferred":                            {wish: "7", granted: "2", enacted: "2", want: 2000},
		"of a status that says neither":       {wish: "7", want: 7000},
		"kubelet tells only what is in force": {wish: "7", enacted: "2", want: 2000},
		"another one is under way":            {wish: "7", granted: "3", enacted: "2", want: 3000},
		"infeasible": {wish: "16", granted: "2", enacted: "2", want: 2000, change: func(p *corev1.Pod) {
			p.Status.Conditions[0].Reason = corev1.PodReasonInfeasible
		}},
		"granted": {wish: "3", granted: "3", enacted: "2", want: 3000, change: func(p *corev1.Pod) {
			p.Status.Conditions[0].Type = corev1.PodResizeInProgress
		}},
		"no longer pending": {wish: "3", granted: "2", enacted: "2", want: 3000, change: func(p *corev1.Pod) {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}},
		"not seen yet": {wish: "7", granted: "2", enacted: "2", want: 2000, change: func(p *corev1.Pod) {
			p.Status.Conditions, p.Generation, p.Status.ObservedGeneration = nil, 2, 1
		}},
		"seen and granted": {wish: "7", granted: "7", enacted: "2", want: 7000, change: func(p *corev1.Pod) {
			p.Status.Conditions, p.Generation, p.Status.ObservedGeneration = nil, 2, 2
		}},
		"a kubelet that observes no generations": {wish: "7", granted: "2", enacted: "2", want: 7000, change: func(p *corev1.Pod) {
			p.Status.Conditions, p.Generation = nil, 2
		}},
		"no CPU before": {wish: "7", want: 0, change: func(p *corev1.Pod) {
			memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
			p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: memory}
		}},
		"a sidecar and an init container before it": {wish: "7", granted: "2", enacted: "2", want: 2500, change: func(p *corev1.Pod) {
			sidecar, status := named("s", cpu("4", true), "500m", "500m")
			p.Spec.InitContainers = []corev1.Container{cpu("1", false), sidecar}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{status}
		}},
		"of the pod, with its overhead": {wish: "1", granted: "1", enacted: "1", want: 3100, change: func(p *corev1.Pod) {
			p.Spec.Resources, p.Spec.Overhead = &corev1.ResourceRequirements{Requests: cpuList("7")}, cpuList("100m")
			p.Status.AllocatedResources = cpuList("3100m")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := resized(test.wish, test.granted, test.enacted)
			if test.change != nil {
				test.change(p)
			}
			if got := milliCPU(p); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestAResizeThatWaitsMovesNoFence: of two critical pods the older one asks for
// nearly all of the node, or more; both keep what they have.
func TestAResizeThatWaitsMovesNoFence(t *testing.T) {
	critical := int32(1_000_000)
	var top topology.Topology
	for id := range 8 {
		top.CPUs = append(top.CPUs, topology.CPU{ID: id, Core: id, Online: true})
	}
	decide := func(prev policy.Plan, older *corev1.Pod) policy.Plan {
		older.Spec.Priority = &critical
		newer := resized("2", "2", "2")
		newer.UID, newer.Spec.Priority, newer.CreationTimestamp = "bbbb-2", &critical, metav1.NewTime(created.Add(time.Hour))
		obs := policy.Observation{Topology: top}
		for i, p := range []*corev1.Pod{older, newer} {
			of, _ := podOf(p, thresholds)
			of.Cgroup, of.ID = "/kubepods/pod"+of.UID, uint64(1+i)
			obs.Pods = append(obs.Pods, of)
		}
		return policy.Decide(prev, obs)
	}
	before := decide(policy.Plan{}, resized("2", "2", "2"))
	if len(before.Groups) != 2 || len(before.Groups[0].Fence) != 2 || len(before.Groups[1].Fence) != 2 {
		t.Fatalf("before any resize: %+v", before)
	}
	for _, wish := range []string{"7", "16"} {
		if diff := cmp.Diff(before, decide(before, resized(wish, "2", "2"))); diff != "" {
			t.Errorf("with a wish for %s CPUs: %s", wish, diff)
		}
	}
}

func TestNodeOf(t *testing.T) {
	n := &corev1.Node{}
	n.Annotations = map[string]string{SafeModeAnnotation: "true"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "Other", Status: corev1.ConditionFalse}}
	n.Status.NodeInfo.BootID = "b"
	if got, want := nodeOf(n), (Node{SafeMode: true, Ready: true, BootID: "b"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	n.Annotations[SafeModeAnnotation] = "false"
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	if got, want := nodeOf(n), (Node{BootID: "b"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestSafeModeAnnotation: of the agent and of kubectl temper it is the same.
func TestSafeModeAnnotation(t *testing.T) {
	for value, want := range map[string]bool{
		"true": true, "True": true, "on": true, "1": true, "yes": true, " on\n": true, "maintenance": true,
		"false": false, "False\n": false, "off": false, "no": false, "0": false, "": false, " ": false,
	} {
		n := &corev1.Node{}
		n.Annotations = map[string]string{SafeModeAnnotation: value}
		if got, seen := nodeOf(n).SafeMode, nodeState(n).SafeMode; got != want || seen != want {
			t.Errorf("%q: of the agent %v, of kubectl temper %v, want %v", value, got, seen, want)
		}
	}
}

// FuzzPodOf: whatever users write, what comes out is bounded, and a name of a
// cgroup is never a path.
func FuzzPodOf(f *testing.F) {
	f.Add("aaaa-1", hash, "background", "hot", int64(1500), int32(resource.Milli))
	f.Add("../x", "a/b", "\x00%s\n", "\xff", int64(-1), int32(99))
	f.Fuzz(func(t *testing.T, uid, mirrors, annotation, class string, request int64, scale int32) {
		// Not parsed from text: that alone takes minutes for some, of which API
		// servers make something short first.
		q := *resource.NewScaledQuantity(request, resource.Scale(scale))
		p := pod(func(p *corev1.Pod) {
			p.UID = types.UID(uid)
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirrors, TierAnnotation: annotation}
			p.Spec.PriorityClassName = class
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: q}}}}
		})
		got, counts := podOf(p, thresholds)
		if !counts {
			return
		}
		if strings.ContainsAny(got.UID, "/._\x00 ") || len(got.UID) > maxWord {
			t.Errorf("UID %q", got.UID)
		}
		if got.MilliCPU < 0 || got.MilliCPU > maxMilliCPU {
			t.Errorf("%d mCPU", got.MilliCPU)
		}
		if len(got.Why) > 2000 || !utf8.ValidString(got.Why) {
			t.Errorf("why %q", got.Why)
		}
		if got.Tier < tier.Standard {
			t.Errorf("tier %v without a priority", got.Tier)
		}
	})
}
