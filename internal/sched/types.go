// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// typeFacts is what the running kernel's types say of it.
type typeFacts struct {
	hasOps          bool     // struct sched_ext_ops
	malformedKfuncs []string // of those that the object calls
	tellsLimits     bool     // of changes of cpu.max, by an op: since 6.17
}

var knownTypes struct {
	sync.Mutex
	facts *typeFacts
}

// kernelTypes reads the kernel's types once: a quarter of a second, where an
// ejected node waits for the next attach. They change with a boot only.
func kernelTypes() (*typeFacts, error) {
	knownTypes.Lock()
	defer knownTypes.Unlock()
	if knownTypes.facts != nil {
		return knownTypes.facts, nil
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	spec, err := loadSched()
	if err != nil {
		return nil, err
	}
	var ops *btf.Struct
	facts := &typeFacts{hasOps: kernel.TypeByName("sched_ext_ops", &ops) == nil}
	if facts.hasOps {
		facts.tellsLimits = slices.ContainsFunc(ops.Members, func(m btf.Member) bool { return m.Name == "cgroup_set_bandwidth" })
	}
	for _, kfunc := range kfuncsOf(spec) {
		// The twin is where the argument belongs.
		if !strings.HasSuffix(kfunc, "_impl") && hasHiddenArgument(kernel, kfunc) {
			facts.malformedKfuncs = append(facts.malformedKfuncs, kfunc)
		}
	}
	knownTypes.facts = facts
	return facts, nil
}

// kfuncsOf lists the kfuncs that the object calls.
func kfuncsOf(spec *ebpf.CollectionSpec) []string {
	seen := make(map[string]bool)
	var names []string
	for _, prog := range spec.Programs {
		for _, ins := range prog.Instructions {
			if name := ins.Reference(); ins.IsKfuncCall() && name != "" && !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

func hasHiddenArgument(kernel *btf.Spec, name string) bool {
	types, err := kernel.AnyTypesByName(name)
	if err != nil {
		return false
	}
	for _, t := range types {
		fn, ok := t.(*btf.Func)
		if !ok || fn.Name != name {
			continue
		}
		proto, ok := fn.Type.(*btf.FuncProto)
		if !ok || len(proto.Params) == 0 {
			continue
		}
		ptr, ok := proto.Params[len(proto.Params)-1].Type.(*btf.Pointer)
		if !ok {
			continue
		}
		if st, ok := btf.As[*btf.Struct](ptr.Target); ok && st.Name == "bpf_prog_aux" {
			return true
		}
	}
	return false
}
