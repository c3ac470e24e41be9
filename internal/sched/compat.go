// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Flags of the ops: a task that is the last one, exits, or has migration
// disabled still goes through enqueue, because only there is it accounted for.
// Having update_idle must not cost us the kernel's idle mask. A wakeup of a
// thread that is just leaving its CPU is left to that CPU: the waker would wait
// for the switch to end, and place the thread elsewhere.
const (
	opsKeepBuiltinIdle      = 1 << 0
	opsEnqLast              = 1 << 1
	opsEnqExiting           = 1 << 2
	opsEnqMigrationDisabled = 1 << 4
	opsAllowQueuedWakeup    = 1 << 5

	opsFlags = opsKeepBuiltinIdle | opsEnqLast | opsEnqExiting | opsEnqMigrationDisabled | opsAllowQueuedWakeup
)

// watchdog is how long the kernel lets a runnable task wait before it ejects
// us. The longest it allows: a crowd of thousands that starves takes turns that may
// be 10 s apart (design 0005), and a host may withhold a virtual machine's CPUs.
const watchdogMillis = 30_000

// adapt fits the object to the running kernel: it drops programs for ops that
// the kernel lacks, poisons kfuncs whose name it cannot resolve, and writes what
// bpf2go cannot initialise.
func adapt(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	var ops *btf.Struct
	if err := kernel.TypeByName("sched_ext_ops", &ops); err != nil {
		return fmt.Errorf("find struct sched_ext_ops: %w", err)
	}
	members := make(map[string]bool, len(ops.Members))
	for _, m := range ops.Members {
		members[m.Name] = true
	}
	for name, prog := range spec.Programs {
		if prog.Type != ebpf.StructOps {
			continue
		}
		_, member, _ := strings.Cut(prog.AttachTo, ":")
		if !members[member] {
			delete(spec.Programs, name)
		}
	}
	poison(spec, kernel)
	return initOps(spec.Maps["temper_ops"])
}

// superseded maps kfuncs to the ones that came after them. With both in the
// kernel, cilium/ebpf v0.22.0 finds the first one's name ambiguous, or its type
// another than it was, and refuses to load, although the call is dead code.
var superseded = map[string]string{
	"scx_bpf_dsq_insert":                 "scx_bpf_dsq_insert___v2",
	"scx_bpf_dsq_move_to_local":          "scx_bpf_dsq_move_to_local___v2",
	"scx_bpf_reenqueue_local":            "scx_bpf_reenqueue_local___v2",
	"bpf_task_work_schedule_resume_impl": "bpf_task_work_schedule_resume",
}

func poison(spec *ebpf.CollectionSpec, kernel *btf.Spec) {
	for old, later := range superseded {
		if !hasFunction(kernel, later) {
			continue
		}
		for _, prog := range spec.Programs {
			poisonCalls(prog.Instructions, old)
		}
	}
}

// hasTaskWork tells whether programs can have something done at a thread's
// return to user mode.
func hasTaskWork(kernel *btf.Spec) bool {
	const name = "bpf_task_work_schedule_resume"
	return hasFunction(kernel, name) || hasFunction(kernel, name+"_impl")
}

// hasFunction compares names itself: the library's lookup also returns types
// whose names differ in what follows the three underscores.
func hasFunction(kernel *btf.Spec, name string) bool {
	types, err := kernel.AnyTypesByName(name)
	return err == nil && slices.ContainsFunc(types, func(t btf.Type) bool {
		fn, ok := t.(*btf.Func)
		return ok && fn.Name == name
	})
}

// poisonCalls replaces calls of a kfunc by calls of a helper that does not
// exist: the verifier refuses the program should one be reachable after all.
func poisonCalls(instructions asm.Instructions, name string) {
	const noSuchHelper = 0x7e39e6
	for i := range instructions {
		ins := &instructions[i]
		if !ins.IsKfuncCall() || ins.Reference() != name {
			continue
		}
		poisoned := asm.BuiltinFunc(noSuchHelper).Call()
		if sym := ins.Symbol(); sym != "" {
			poisoned = poisoned.WithSymbol(sym)
		}
		*ins = poisoned
	}
}

// initOps writes name, flags and watchdog into the ops' bytes.
func initOps(ops *ebpf.MapSpec) error {
	if ops == nil || len(ops.Contents) != 1 {
		return errors.New("object has no ops")
	}
	st, ok := btf.As[*btf.Struct](ops.Value)
	value, isBytes := ops.Contents[0].Value.([]byte)
	if !ok || !isBytes {
		return errors.New("ops are not a struct")
	}
	value = append([]byte(nil), value...)
	for _, m := range st.Members {
		at := value[m.Offset.Bytes():]
		switch m.Name {
		case "name":
			copy(at, Name)
		case "flags":
			binary.LittleEndian.PutUint64(at, opsFlags)
		case "timeout_ms":
			binary.LittleEndian.PutUint32(at, watchdogMillis)
		}
	}
	ops.Contents[0].Value = value
	return nil
}

// progCountsItself reports whether a BPF program that runs on a task counts in
// the task's migration_disabled: always before 6.18, and with CONFIG_PREEMPT_RCU
// since.
func progCountsItself(kernel *btf.Spec) bool {
	if major, minor, ok := version(kernelRelease()); ok && (major < 6 || major == 6 && minor < 18) {
		return true
	}
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		return true
	}
	return slices.ContainsFunc(task.Members, func(m btf.Member) bool { return m.Name == "rcu_read_lock_nesting" })
}

// insertsLosePreempt reports whether SCX_ENQ_PREEMPT gets lost on the way to
// another CPU's queue: before 7.0, 6.19.9 and 6.18.19 the kernel's enqueue_task_scx
// cuts it off. What tells is the parameter's name, which its fix changed.
func insertsLosePreempt(kernel *btf.Spec) bool {
	var enqueue *btf.Func
	if err := kernel.TypeByName("enqueue_task_scx", &enqueue); err != nil {
		return true
	}
	proto, ok := enqueue.Type.(*btf.FuncProto)
	return !ok || !slices.ContainsFunc(proto.Params, func(p btf.FuncParam) bool { return p.Name == "core_enq_flags" })
}

// MemberOffsets reads from a kernel's BTF where members of one of its structures
// lie, in bytes.
func MemberOffsets(types io.ReaderAt, structure string, members ...string) ([]uint32, error) {
	spec, err := btf.LoadSpecFromReader(types)
	if err != nil {
		return nil, fmt.Errorf("read BTF: %w", err)
	}
	var st *btf.Struct
	if err := spec.TypeByName(structure, &st); err != nil {
		return nil, fmt.Errorf("find struct %s: %w", structure, err)
	}
	offsets := make([]uint32, 0, len(members))
	for _, name := range members {
		i := slices.IndexFunc(st.Members, func(m btf.Member) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("struct %s has no %s", structure, name)
		}
		offsets = append(offsets, st.Members[i].Offset.Bytes())
	}
	return offsets, nil
}
