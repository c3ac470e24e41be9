// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/topology"
)

// ErrNotAttached means that no Temper scheduler is pinned on this node.
var ErrNotAttached = errors.New("temper is not attached")

// Error says why the engine cannot run here, in the words of the closed list.
type Error struct {
	Reason Reason
	Fix    string // the way out, for a person
	Err    error
}

// Error returns the reason and the cause.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Config is what Attach needs to know.
type Config struct {
	PinDir  string         // DefaultPinDir if empty
	DeadMan time.Duration  // time without a heartbeat until the node returns to stock; 0: never
	CPUs    []topology.CPU // the node's possible CPUs
	// NoPreempt makes waking threads wait for a slice to end. The laboratory
	// shows with it what preemption is worth; nobody runs a node so.
	NoPreempt bool
	Log       *slog.Logger
}

// programs are the syscall programs that any process may run on an attached
// scheduler: they are pinned like the maps.
var programs = []string{"temper_apply", "temper_requeue", "temper_heartbeat", "temper_set_limit"}

// Scheduler is a handle on the attached scheduler. Closing it changes nothing
// on the node: link and maps are pinned.
type Scheduler struct {
	pinDir   string
	maps     map[string]*ebpf.Map
	programs map[string]*ebpf.Program
	plans    planMaps
	adopted  bool
	missing  string // a pin that this build needs and does not find, or finds to be another thing
}

// ErrOtherBuild means that another build of Temper is attached: it can be
// detached and replaced, but not read.
var ErrOtherBuild = errors.New("another build of temper is attached")

// needed lists the maps that a handle reads or writes, and what their values are
// read into: a map whose values have another size is another build's.
var needed = []struct {
	name string
	size uintptr // 0: any
}{
	{"plan_groups", unsafe.Sizeof(schedTemperGroup{})},
	{"plan_heads", unsafe.Sizeof(schedTemperPlanHead{})},
	{"plan_fences", unsafe.Sizeof(schedTemperMask{})},
	{"plan_cpu_fences", unsafe.Sizeof(uint32(0))},
	{"plan_generation", unsafe.Sizeof(uint64(0))},
	{"controls", unsafe.Sizeof(control{})},
	{"exits", unsafe.Sizeof(schedTemperExitInfo{})},
	{schedMapTierCounters, unsafe.Sizeof(schedTemperTierCounters{})},
	{schedMapGates, unsafe.Sizeof(schedGate{})},
	{pinGlobals, 0},
	{pinObject, sha256.Size},
}

func (s *Scheduler) check() error {
	if s.missing == "" {
		return nil
	}
	return fmt.Errorf("%w: it pinned no %s that this one can use", ErrOtherBuild, s.missing)
}

// Adopted reports whether Attach found a scheduler of this object attached.
func (s *Scheduler) Adopted() bool { return s.adopted }

// Attach makes Temper this node's scheduler. If a process before this one left
// it attached, that scheduler is adopted; if it was of another build, it is
// replaced. A scheduler of anybody else is never touched.
func Attach(ctx context.Context, cfg Config) (_ *Scheduler, err error) {
	defer func() { err = reasonOf(err) }()
	if cfg.PinDir == "" {
		cfg.PinDir = DefaultPinDir
	}
	for _, c := range Preflight(cfg.PinDir) {
		if !c.OK {
			return nil, &Error{Reason: c.Reason, Fix: c.Fix, Err: errors.New(c.Detail)}
		}
	}
	s, err := adopt(cfg)
	if err != nil || s != nil && s.adopted {
		return s, err
	}
	if err := ctx.Err(); err != nil {
		if s != nil {
			_ = s.Close()
		}
		return nil, err
	}
	if s != nil {
		_ = s.Heartbeat() // the time that a load takes; what is dead takes none
	}
	return load(cfg, s)
}

// adopt returns the scheduler that is pinned, nil if there is none. It is adopted
// if it is alive and this build's; else it, or what remains of it, is to be
// replaced.
func adopt(cfg Config) (*Scheduler, error) {
	if _, err := Clear(cfg.PinDir); err != nil {
		return nil, err
	}
	s, err := Open(cfg.PinDir)
	if errors.Is(err, ErrNotAttached) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s.isAlive(cfg) {
		s.adopted = true
		return s, nil
	}
	if cfg.Log != nil {
		cfg.Log.Info("replace pinned scheduler", "pin_dir", cfg.PinDir)
	}
	return s, nil
}

// isAlive reports whether this build's scheduler, as it would be loaded now,
// runs the node.
func (s *Scheduler) isAlive(cfg Config) bool {
	if s.missing != "" || !s.isThisBuild(cfg) || s.Heartbeat() != nil {
		return false
	}
	state, err := s.State()
	return err == nil && state.Attached
}

// fingerprint identifies the build and what was set before the load: two
// processes with the same one may share a scheduler.
func fingerprint(cfg Config) [sha256.Size]byte {
	h := sha256.New()
	h.Write(_SchedBytes)
	fmt.Fprint(h, cfg.DeadMan, cfg.NoPreempt)
	for _, c := range cfg.CPUs {
		// Not its place: sysfs hides that of a CPU that is offline.
		fmt.Fprint(h, " ", c.ID)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (s *Scheduler) isThisBuild(cfg Config) bool {
	var pinned [sha256.Size]byte
	m := s.maps[pinObject]
	if m == nil || m.Lookup(uint32(0), &pinned) != nil {
		return false
	}
	want := fingerprint(cfg)
	return bytes.Equal(pinned[:], want[:])
}

// load builds everything in a staging directory and renames it into place: a
// half-loaded scheduler cannot be found by anybody. One that is replaced runs
// until the kernel has accepted, or refused, the next: checking that takes the longest.
func load(cfg Config, replaced *Scheduler) (_ *Scheduler, err error) {
	coll, err := loadCollection(cfg)
	if err == nil {
		defer coll.Close()
	}
	if replaced != nil {
		// Closed when the next one is attached: while the kernel frees what the old
		// one stored on a task, nothing new can be stored there.
		defer replaced.Close()
		err = errors.Join(err, replaced.unpin(), awaitStock())
	}
	if err != nil {
		return nil, err
	}

	object, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: "temper_object", Type: ebpf.Array, KeySize: 4, ValueSize: sha256.Size, MaxEntries: 1,
	}, ebpf.MapOptions{})
	if err != nil {
		return nil, fmt.Errorf("create object map: %w", err)
	}
	defer object.Close()
	if err := object.Put(uint32(0), fingerprint(cfg)); err != nil {
		return nil, fmt.Errorf("write object map: %w", err)
	}

	staging := stagingDir(cfg.PinDir)
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return nil, pinDirError(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removePins(staging))
		}
	}()
	if err := pinAll(coll, object, staging); err != nil {
		return nil, err
	}
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps["temper_ops"]})
	if err != nil {
		return nil, attachError(err)
	}
	defer l.Close()
	pinner, ok := l.(interface{ Pin(string) error })
	if !ok {
		return nil, errors.New("pin link: not supported by the library")
	}
	if err := pinner.Pin(filepath.Join(staging, pinLink)); err != nil {
		return nil, fmt.Errorf("pin link: %w", err)
	}
	if err := os.Rename(staging, cfg.PinDir); err != nil {
		return nil, fmt.Errorf("publish pin directory: %w", err)
	}
	return Open(cfg.PinDir)
}

func loadCollection(cfg Config) (*ebpf.Collection, error) {
	kernel := btf.NewCache()
	spec, err := prepare(cfg, kernel)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: kernel})
	if err != nil {
		return nil, loadError(err)
	}
	return coll, nil
}

// prepare fits the object to this kernel and this node.
func prepare(cfg Config, types *btf.Cache) (*ebpf.CollectionSpec, error) {
	spec, err := loadSched()
	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	kernel, err := types.Kernel()
	if err != nil {
		return nil, &Error{Reason: NoBTF, Fix: fixBTF, Err: err}
	}
	if err := adapt(spec, kernel); err != nil {
		return nil, &Error{Reason: NoSchedExt, Fix: fixSchedExt, Err: err}
	}
	if err := describeNode(spec, cfg); err != nil {
		return nil, err
	}
	if err := spec.Variables["prog_counts_itself"].Set(progCountsItself(kernel)); err != nil {
		return nil, fmt.Errorf("set prog_counts_itself: %w", err)
	}
	if err := nameKernelVariables(spec, kernel); err != nil {
		return nil, err
	}
	if err := spec.Variables["has_task_work"].Set(hasTaskWork(kernel)); err != nil {
		return nil, fmt.Errorf("set has_task_work: %w", err)
	}
	if err := spec.Variables["inserts_lose_preempt"].Set(insertsLosePreempt(kernel)); err != nil {
		return nil, fmt.Errorf("set inserts_lose_preempt: %w", err)
	}
	return spec, nil
}

// preemptCountMark and softirqPendingMark are PREEMPT_COUNT_MARK and SOFTIRQ_PENDING_MARK
// of bpf/victim.bpf.h, and pseudoBTFID the kernel's BPF_PSEUDO_BTF_ID: the load is of the
// address of a kernel variable.
const (
	preemptCountMark   = 0x74656d70
	softirqPendingMark = 0x74656d71
	pseudoBTFID        = asm.R3
)

// nameKernelVariables has the programs read what each CPU has of the kernel's variables on
// x86.
func nameKernelVariables(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	ids := map[int64]btf.TypeID{}
	for mark, name := range map[int64]string{
		preemptCountMark:   "__preempt_count",
		softirqPendingMark: "__softirq_pending",
	} {
		var variable *btf.Var
		err := kernel.TypeByName(name, &variable)
		if errors.Is(err, btf.ErrNotFound) {
			return nil
		}
		if err == nil {
			ids[mark], err = kernel.TypeID(variable)
		}
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
	}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			if id, ok := ids[ins.Constant]; ok && ins.OpCode.IsDWordLoad() && ins.Src == 0 {
				ins.Src, ins.Constant = pseudoBTFID, int64(id)
			}
		}
	}
	if err := spec.Variables["has_preempt_count"].Set(true); err != nil {
		return fmt.Errorf("set has_preempt_count: %w", err)
	}
	return nil
}

// describeNode sets the constants that the object was compiled without.
func describeNode(spec *ebpf.CollectionSpec, cfg Config) error {
	var cpus [maxCPUs]schedTemperCpuTopology
	var llcs [schedTemperLimitsTEMPER_MAX_LLCS]schedTemperMask
	nrCPUs, nrLLCs, smt, err := describeCPUs(cfg.CPUs, cpus[:], llcs[:])
	if err != nil {
		return err
	}
	return errors.Join(
		spec.Variables["nr_cpus"].Set(uint32(nrCPUs)),
		spec.Variables["nr_words"].Set(uint32((nrCPUs+63)/64)),
		spec.Variables["nr_llcs"].Set(uint32(nrLLCs)),
		spec.Variables["has_smt"].Set(smt),
		spec.Variables["no_preempt"].Set(cfg.NoPreempt),
		spec.Variables["topology"].Set(cpus),
		spec.Variables["llc_cpus"].Set(llcs),
		spec.Variables["dead_man_ns"].Set(uint64(cfg.DeadMan)),
	)
}

// describeCPUs fills in each CPU's LLC and the ring of its core's threads.
func describeCPUs(cpus []topology.CPU, out []schedTemperCpuTopology, llcs []schedTemperMask) (nrCPUs, nrLLCs int, smt bool, err error) {
	if len(cpus) == 0 {
		return 0, 0, false, errors.New("describe node: no CPUs")
	}
	threads := make(map[int][]int)
	for i := range out {
		out[i].NextSibling = uint16(i)
	}
	for _, c := range cpus {
		if c.ID < 0 || c.ID >= len(out) {
			return 0, 0, false, fmt.Errorf("describe CPU %d: only CPUs below %d are supported", c.ID, len(out))
		}
		if c.LLC < 0 || c.LLC >= len(llcs) {
			return 0, 0, false, fmt.Errorf("describe CPU %d: only %d last-level caches are supported", c.ID, len(llcs))
		}
		out[c.ID].Llc = uint16(c.LLC)
		llcs[c.LLC].Words[c.ID/64] |= 1 << (c.ID % 64)
		nrCPUs = max(nrCPUs, c.ID+1)
		nrLLCs = max(nrLLCs, c.LLC+1)
		threads[c.Core] = append(threads[c.Core], c.ID)
	}
	for _, ids := range threads {
		for i, id := range ids {
			out[id].NextSibling = uint16(ids[(i+1)%len(ids)])
		}
		smt = smt || len(ids) > 1
	}
	return nrCPUs, nrLLCs, smt, nil
}

// Open returns a handle on the scheduler pinned below pinDir. The error wraps
// ErrNotAttached if there is none.
func Open(pinDir string) (_ *Scheduler, err error) {
	if pinDir == "" {
		pinDir = DefaultPinDir
	}
	s := &Scheduler{pinDir: pinDir, maps: make(map[string]*ebpf.Map), programs: make(map[string]*ebpf.Program)}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if err := isPinDir(pinDir); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotAttached
	} else if err != nil {
		return nil, fmt.Errorf("read pin directory: %w", err)
	}
	// The link is not opened: removing its pin must drop the last reference,
	// whoever else has a handle.
	if _, err := os.Stat(filepath.Join(pinDir, pinLink)); err != nil {
		return nil, fmt.Errorf("%w: %s holds no link", ErrNotAttached, pinDir)
	}
	if err := s.openPins(); err != nil {
		return nil, err
	}
	s.plans = planMaps{
		groups: s.maps["plan_groups"], heads: s.maps["plan_heads"], fences: s.maps["plan_fences"],
		cpuFences: s.maps["plan_cpu_fences"], generation: s.maps["plan_generation"],
	}
	return s, nil
}

// openPins opens what this build needs. What else is pinned is another build's
// and nobody's here: whatever it is, it must not keep anybody from detaching.
func (s *Scheduler) openPins() error {
	for _, want := range needed {
		m, err := ebpf.LoadPinnedMap(filepath.Join(s.pinDir, want.name), nil)
		if err == nil && want.size != 0 && uintptr(m.ValueSize()) != want.size {
			err = errors.Join(errors.New("its values have another size"), m.Close())
		}
		if err == nil {
			s.maps[want.name] = m
		} else if err := s.miss(want.name, err); err != nil {
			return err
		}
	}
	for _, name := range programs {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(s.pinDir, name), nil)
		if err == nil {
			s.programs[name] = p
		} else if err := s.miss(name, err); err != nil {
			return err
		}
	}
	return nil
}

// miss notes a pin that is not there or is another kind of thing. That the kernel
// refused to open it is an error: it says nothing of whose it is.
func (s *Scheduler) miss(name string, err error) error {
	if _, refused := errors.AsType[unix.Errno](err); refused && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open pinned %s: %w", name, err)
	}
	s.missing = name
	return nil
}

// Apply puts a plan in force, whole: until it returns the plan before it holds,
// and a refused one changes nothing.
func (s *Scheduler) Apply(p policy.Plan) error {
	if err := s.check(); err != nil {
		return err
	}
	next, err := s.plans.fill(p)
	if err != nil {
		return err
	}
	ret, err := s.programs["temper_apply"].Run(&ebpf.RunOptions{Context: schedTemperApplyArgs{Generation: next}})
	if err != nil {
		return fmt.Errorf("apply plan: %w", err)
	}
	switch errno := unix.Errno(-int32(ret)); errno {
	case 0:
	case unix.EAGAIN:
		return fmt.Errorf("apply plan: %w", ErrConcurrentApply)
	default:
		return fmt.Errorf("apply plan: refused by the kernel side: %w", errno)
	}
	return s.run("temper_requeue")
}

// Generation returns the number of the plan in force, 0 before the first.
func (s *Scheduler) Generation() (uint64, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	return s.plans.current()
}

// Has tells whether the plan in force names a cgroup.
func (s *Scheduler) Has(cgroup uint64) (bool, error) {
	if err := s.check(); err != nil {
		return false, err
	}
	return s.plans.has(cgroup)
}

// Plan returns the plan in force. Groups carry ids only.
func (s *Scheduler) Plan() (policy.Plan, error) {
	if err := s.check(); err != nil {
		return policy.Plan{}, err
	}
	generation, err := s.plans.current()
	if err != nil || generation == 0 {
		return policy.Plan{}, err
	}
	slot, err := s.plans.read(generation)
	if err != nil {
		return policy.Plan{}, err
	}
	return slot.plan(), nil
}

// Heartbeat tells the dead-man that somebody still looks after the plan.
func (s *Scheduler) Heartbeat() error { return s.run("temper_heartbeat") }

func (s *Scheduler) run(name string) error {
	prog := s.programs[name]
	if prog == nil {
		return fmt.Errorf("run %s: not pinned", name)
	}
	if _, err := prog.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return nil
}

// Detach returns the node to the kernel's own scheduler, waits until that is
// so, and removes the pins.
func (s *Scheduler) Detach() error {
	if err := errors.Join(s.unpin(), s.Close()); err != nil {
		return err
	}
	return awaitStock()
}

func (s *Scheduler) unpin() error {
	return errors.Join(removePins(s.pinDir), os.RemoveAll(probeDir(s.pinDir)))
}

// Close gives up the handle. The scheduler stays attached.
func (s *Scheduler) Close() error {
	var errs []error
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	for _, p := range s.programs {
		errs = append(errs, p.Close())
	}
	clear(s.maps)
	clear(s.programs)
	return errors.Join(errs...)
}
