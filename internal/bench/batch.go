// SPDX-License-Identifier: Apache-2.0

package bench

import "slices"

// Batch is a kind of background work that is more than computing: what the
// kernel does for it, it does in stretches in which nobody can preempt it, with
// locks that others wait for, and its threads come, wake each other and go.
type Batch struct {
	Name string
	Does string // for reports
	// Args are stress-ng's, one of whose stressors it is. PortWord in them
	// stands for a port of the pod's own.
	Args []string
}

// PortWord is replaced by a port that no other pod uses.
const PortWord = "{port}"

// batchPackage is the Debian package of all batches' program.
const batchPackage = "stress-ng"

// Batches lists the kinds of background work besides spinners.
func Batches() []Batch {
	return []Batch{
		{Name: "fork", Does: "forks processes that exit", Args: []string{"--fork", "1"}},
		{Name: "switch", Does: "has two processes wake each other through a pipe", Args: []string{"--switch", "1"}},
		{Name: "fault", Does: "takes page faults, mapping and unmapping files", Args: []string{"--fault", "1"}},
		{Name: "socket", Does: "connects, sends and closes over loopback TCP", Args: []string{"--sock", "1", "--sock-port", PortWord}},
	}
}

// BatchOf returns the batch of that name; nil if there is none.
func BatchOf(name string) *Batch {
	all := Batches()
	if i := slices.IndexFunc(all, func(b Batch) bool { return b.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func batchNames() []string {
	var out []string
	for _, b := range Batches() {
		out = append(out, b.Name)
	}
	return out
}

// BatchAt is what the n-th background pod does, from 1; nil if it spins.
func (s Scenario) BatchAt(n int) *Batch {
	if len(s.Background) == 0 {
		return nil
	}
	return BatchOf(s.Background[(n-1)%len(s.Background)])
}

// Neighbour is the word for one of the background pods.
func (s Scenario) Neighbour() string {
	if len(s.Background) > 0 {
		return "batch pod"
	}
	return "spinner"
}

// Packages are the Debian packages that the scenario's programs come from.
func (s Scenario) Packages() []string {
	out := slices.Clone(s.KindOf().Packages)
	if len(s.Background) > 0 {
		out = append(out, batchPackage)
	}
	return out
}
