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

func TestNodeOf(t *testing.T) {
	n := &corev1.Node{}
	n.Annotations = map[string]string{SafeModeAnnotation: "true"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "Other", Status: corev1.ConditionFalse}}
	n.Status.NodeInfo.BootID = "b"
	if got, want := nodeOf(n), (Node{SafeMode: true, Ready: true, BootID: "b"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	n.Annotations[SafeModeAnnotation] = "TRUE"
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	if got, want := nodeOf(n), (Node{BootID: "b"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
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
