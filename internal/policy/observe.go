// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// Observation is what the plan of a Kubernetes node is decided from.
type Observation struct {
	Topology topology.Topology
	Pods     []Pod // of this node, in any order
	// Defaults are the cgroups above the pods. They give pods that nobody has
	// heard of yet a tier from their first thread on.
	Defaults []Group
	Reserved []int // CPUs that are in no fence: kubelet's --reserved-cpus
	Lend     Lend
	CPUMax   CPUMax
}

// Equal tells whether what is decided from o holds for p.
func (o Observation) Equal(p Observation) bool {
	sameDefault := func(a, b Group) bool { return a.ID == b.ID && a.Cgroup == b.Cgroup && sameGroup(&a, &b) }
	return slices.Equal(o.Topology.CPUs, p.Topology.CPUs) && slices.EqualFunc(o.Pods, p.Pods, Pod.Equal) &&
		slices.EqualFunc(o.Defaults, p.Defaults, sameDefault) && slices.Equal(o.Reserved, p.Reserved) &&
		o.Lend == p.Lend && o.CPUMax == p.CPUMax
}

// Pod is a pod of this node.
type Pod struct {
	UID       string    `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"` // of pods that do not all fit, the newest go without a fence
	Tier      tier.Tier `json:"tier"`
	Why       string    `json:"why"` // it has this tier
	// MilliCPU is what its containers request and kubelet has granted, in
	// thousandths of a CPU.
	MilliCPU int64 `json:"milli_cpu"`
	// Cgroup and ID are empty until its cgroup is found.
	Cgroup string `json:"cgroup,omitempty"`
	ID     uint64 `json:"id,omitempty"`
	// Exclusive are the CPUs that kubelet's CPU manager gave to it alone.
	Exclusive []int `json:"exclusive,omitempty"`
}

// Equal tells whether nothing of the pod differs.
func (p Pod) Equal(q Pod) bool {
	return p.UID == q.UID && p.Namespace == q.Namespace && p.Name == q.Name && p.Created.Equal(q.Created) &&
		p.Tier == q.Tier && p.Why == q.Why && p.MilliCPU == q.MilliCPU &&
		p.Cgroup == q.Cgroup && p.ID == q.ID && slices.Equal(p.Exclusive, q.Exclusive)
}
