// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// ErrConcurrentApply means that another process applied a plan at the same time.
var ErrConcurrentApply = errors.New("another process applied a plan meanwhile")

const (
	maxCPUs   = int(schedTemperLimitsTEMPER_MAX_CPUS)
	maxFences = int(schedTemperLimitsTEMPER_MAX_FENCES)
)

// The first fence's number is 1.
var _ [policy.MaxFences + 1]struct{} = [schedTemperLimitsTEMPER_MAX_FENCES]struct{}{}

// planMaps writes plans where the BPF side reads them. A plan lives in one of
// two slots; the one that is not in force is filled and then put in force by
// its generation, whose lowest bit names the slot.
type planMaps struct {
	groups     *ebpf.Map
	heads      *ebpf.Map
	fences     *ebpf.Map
	cpuFences  *ebpf.Map
	generation *ebpf.Map

	// slots mirrors what the two slots hold, so that only differences are
	// written. nil: not read yet.
	slots [2]*slot
}

// slot is one plan as the maps hold it.
type slot struct {
	groups    map[uint64]schedTemperGroup
	head      schedTemperPlanHead
	fences    map[uint32]schedTemperMask
	cpuFences map[uint32]uint32
}

// compile turns a plan into what a slot holds.
func compile(p policy.Plan, generation uint64) (*slot, error) {
	s := &slot{
		groups:    make(map[uint64]schedTemperGroup, len(p.Groups)),
		fences:    make(map[uint32]schedTemperMask),
		cpuFences: make(map[uint32]uint32),
	}
	s.head.Generation = generation
	s.head.Lend = uint32(p.Lend)
	for _, g := range p.Groups {
		if _, ok := s.groups[g.ID]; ok {
			return nil, fmt.Errorf("plan cgroup %s: named twice", g.Cgroup)
		}
		entry := schedTemperGroup{Tier: uint32(g.Tier)}
		if g.EachChild {
			entry.EachChild = 1
		}
		if len(g.Fence) > 0 {
			id, err := s.addFence(g)
			if err != nil {
				return nil, fmt.Errorf("plan cgroup %s: %w", g.Cgroup, err)
			}
			entry.Fence = id
		}
		s.groups[g.ID] = entry
	}
	return s, nil
}

func (s *slot) addFence(g policy.Group) (uint32, error) {
	id := s.head.NrFences + 1
	if int(id) >= maxFences {
		return 0, fmt.Errorf("more than %d fences", maxFences-1)
	}
	var mask schedTemperMask
	for _, cpu := range g.Fence {
		if cpu < 0 || cpu >= maxCPUs {
			return 0, fmt.Errorf("fence CPU %d: only CPUs below %d can be fenced", cpu, maxCPUs)
		}
		if owner := s.cpuFences[uint32(cpu)]; owner != 0 {
			return 0, fmt.Errorf("fence CPU %d: in another fence already", cpu)
		}
		s.cpuFences[uint32(cpu)] = id
		mask.Words[cpu/64] |= 1 << (cpu % 64)
		s.head.Fenced.Words[cpu/64] |= 1 << (cpu % 64)
	}
	s.head.NrFences = id
	s.fences[id] = mask
	return id, nil
}

// current returns the generation in force.
func (m *planMaps) current() (uint64, error) {
	var generation uint64
	if err := m.generation.Lookup(uint32(0), &generation); err != nil {
		return 0, fmt.Errorf("read plan generation: %w", err)
	}
	return generation, nil
}

// has looks a cgroup up in the plan in force, again if another takes its place
// meanwhile: its slot may be written by then.
func (m *planMaps) has(cgroup uint64) (bool, error) {
	for {
		generation, err := m.current()
		if err != nil || generation == 0 {
			return false, err
		}
		var g schedTemperGroup
		err = m.groups.Lookup(schedTemperGroupKey{Cgroup: cgroup, Slot: uint32(generation & 1)}, &g)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return false, fmt.Errorf("read plan groups: %w", err)
		}
		now, againErr := m.current()
		if againErr != nil || now == generation {
			return err == nil, againErr
		}
	}
}

// fill writes the plan for the next generation into the slot not in force.
func (m *planMaps) fill(p policy.Plan) (next uint64, err error) {
	current, err := m.current()
	if err != nil {
		return 0, err
	}
	next = current + 1
	want, err := compile(p, next)
	if err != nil {
		return 0, err
	}
	have, err := m.read(next)
	if err != nil {
		return 0, err
	}
	if err := m.write(uint32(next&1), have, want); err != nil {
		m.slots[next&1] = nil // half written: read it anew before the next try
		return 0, fmt.Errorf("write plan: %w", err)
	}
	m.slots[next&1] = want
	return next, nil
}

// write changes a slot from have to want. While it does the slot has no head: if it fails
// half way, whoever writes next reads what is there instead of trusting what it remembers.
func (m *planMaps) write(n uint32, have, want *slot) error {
	if err := m.heads.Put(n, schedTemperPlanHead{}); err != nil {
		return err
	}
	for id := range have.groups {
		if _, ok := want.groups[id]; ok {
			continue
		}
		key := schedTemperGroupKey{Cgroup: id, Slot: n}
		if err := m.groups.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	for id, g := range want.groups {
		if old, ok := have.groups[id]; ok && old == g {
			continue
		}
		if err := m.groups.Put(schedTemperGroupKey{Cgroup: id, Slot: n}, g); err != nil {
			return err
		}
	}
	if err := diffArray(m.fences, n*uint32(maxFences), have.fences, want.fences); err != nil {
		return err
	}
	if err := diffArray(m.cpuFences, n*uint32(maxCPUs), have.cpuFences, want.cpuFences); err != nil {
		return err
	}
	return m.heads.Put(n, want.head)
}

// diffArray writes the entries of an array that differ; absent means zero.
func diffArray[V comparable](m *ebpf.Map, base uint32, have, want map[uint32]V) error {
	var zero V
	for i := range have {
		if _, ok := want[i]; ok {
			continue
		}
		if err := m.Put(base+i, zero); err != nil {
			return err
		}
	}
	for i, v := range want {
		if old, ok := have[i]; ok && old == v {
			continue
		}
		if err := m.Put(base+i, v); err != nil {
			return err
		}
	}
	return nil
}

// read returns what the slot of a generation holds.
func (m *planMaps) read(generation uint64) (*slot, error) {
	n := uint32(generation & 1)
	if s := m.slots[n]; s != nil {
		// Another process may have written it since: its head says so.
		var head schedTemperPlanHead
		if err := m.heads.Lookup(n, &head); err == nil && head == s.head {
			return s, nil
		}
	}
	s := &slot{
		groups:    make(map[uint64]schedTemperGroup),
		fences:    make(map[uint32]schedTemperMask),
		cpuFences: make(map[uint32]uint32),
	}
	if err := m.heads.Lookup(n, &s.head); err != nil {
		return nil, fmt.Errorf("read plan head: %w", err)
	}
	var key schedTemperGroupKey
	var group schedTemperGroup
	groups := m.groups.Iterate()
	for groups.Next(&key, &group) {
		if key.Slot == n {
			s.groups[key.Cgroup] = group
		}
	}
	if err := groups.Err(); err != nil {
		return nil, fmt.Errorf("read plan groups: %w", err)
	}
	if err := readArray(m.fences, n*uint32(maxFences), maxFences, s.fences); err != nil {
		return nil, fmt.Errorf("read plan fences: %w", err)
	}
	if err := readArray(m.cpuFences, n*uint32(maxCPUs), maxCPUs, s.cpuFences); err != nil {
		return nil, fmt.Errorf("read plan CPUs: %w", err)
	}
	m.slots[n] = s
	return s, nil
}

func readArray[V comparable](m *ebpf.Map, base uint32, n int, into map[uint32]V) error {
	var zero, v V
	for i := range uint32(n) {
		if err := m.Lookup(base+i, &v); err != nil {
			return err
		}
		if v != zero {
			into[i] = v
		}
	}
	return nil
}

// plan returns the plan of a slot. The kernel side knows ids, no paths.
func (s *slot) plan() policy.Plan {
	p := policy.Plan{Lend: policy.Lend(s.head.Lend)}
	for id, g := range s.groups {
		group := policy.Group{ID: id, Tier: tier.Tier(g.Tier), EachChild: g.EachChild != 0}
		mask := s.fences[g.Fence]
		for cpu := range maxCPUs {
			if g.Fence != 0 && mask.Words[cpu/64]&(1<<(cpu%64)) != 0 {
				group.Fence = append(group.Fence, cpu)
			}
		}
		p.Groups = append(p.Groups, group)
	}
	slices.SortFunc(p.Groups, func(a, b policy.Group) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return p
}
