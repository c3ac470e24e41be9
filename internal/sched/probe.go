// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
)

// DefaultProbeDir is where a probe's maps are pinned for other processes. It
// is beside the scheduler's pins, not below: they live as long as the process
// that measures, not as long as the scheduler.
const DefaultProbeDir = DefaultPinDir + "_probe"

// ErrNotMeasured means that no probe runs on this node.
var ErrNotMeasured = errors.New("no probe is running")

// ProbeConfig is what StartProbe needs to know.
type ProbeConfig struct {
	// Maps are the plan maps of an attached scheduler, by name: the probe then
	// measures by the scheduler's plan. Without them it has a plan of its own
	// (Apply), so that a node under the kernel's scheduler can be measured.
	Maps map[string]*ebpf.Map
	// PinDir is where the maps are pinned for OpenProbe; not at all if empty.
	// Pins of an earlier probe are replaced.
	PinDir string
}

// Probe measures who used the CPUs and how long tasks waited for one, whatever
// scheduler runs. Nothing is measured after Close or the process's death.
type Probe struct {
	readings
	coll   *ebpf.Collection // nil: another process measures
	links  []link.Link
	plans  *planMaps // nil: the plan is the scheduler's
	pinDir string
}

// probePins are the maps that a reader needs.
var probePins = []string{
	probeMapCpuTimes, probeMapTierDelays, probeMapGroupDelays, probeMapGroupSlots, probeMapProbeMisses,
}

// StartProbe loads the probe and begins to measure. It needs CAP_BPF and
// CAP_PERFMON, and no sched_ext.
func StartProbe(cfg ProbeConfig) (_ *Probe, err error) {
	nrCPUs, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	if nrCPUs > maxCPUs {
		return nil, fmt.Errorf("measure %d CPUs: only %d are supported", nrCPUs, maxCPUs)
	}
	coll, shared, err := loadProbeCollection(cfg.Maps, nrCPUs)
	if err != nil {
		return nil, err
	}
	p := &Probe{coll: coll, pinDir: cfg.PinDir}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if !shared {
		p.plans = newPlanMaps(coll.Maps)
	}
	if p.readings, err = newReadings(coll.Maps, nrCPUs); err != nil {
		return nil, err
	}
	if err := p.attach(); err != nil {
		return nil, err
	}
	if cfg.PinDir != "" {
		if err := p.pin(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// loadProbeCollection loads the object, with the plan maps of a scheduler if
// there are any.
func loadProbeCollection(maps map[string]*ebpf.Map, nrCPUs int) (_ *ebpf.Collection, shared bool, err error) {
	// The kernel's types take a third of the start to read: once is enough.
	types := btf.NewCache()
	if _, err := types.Kernel(); err != nil {
		return nil, false, &Error{Reason: NoBTF, Fix: fixBTF, Err: err}
	}
	spec, err := loadProbe()
	if err != nil {
		return nil, false, fmt.Errorf("read probe object: %w", err)
	}
	if err := spec.Variables[probeVarNrCpus].Set(uint32(nrCPUs)); err != nil {
		return nil, false, fmt.Errorf("set number of CPUs: %w", err)
	}
	plans := make(map[string]*ebpf.Map)
	for _, name := range []string{
		probeMapPlanGroups, probeMapPlanHeads, probeMapPlanFences, probeMapPlanCpuFences, probeMapPlanGeneration,
	} {
		if m := maps[name]; m != nil {
			plans[name] = m
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: plans, Cache: types})
	if err != nil {
		return nil, false, loadError(err)
	}
	return coll, len(plans) > 0, nil
}

func newPlanMaps(maps map[string]*ebpf.Map) *planMaps {
	return &planMaps{
		groups: maps[probeMapPlanGroups], heads: maps[probeMapPlanHeads], fences: maps[probeMapPlanFences],
		cpuFences: maps[probeMapPlanCpuFences], generation: maps[probeMapPlanGeneration],
	}
}

// attach begins with what ends things, so that nothing is begun that no
// program ends.
func (p *Probe) attach() error {
	free := p.coll.Maps[probeMapFreeSlots]
	for slot := int(free.MaxEntries()) - 1; slot >= 0; slot-- {
		if err := free.Update(nil, uint32(slot), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("fill free slots: %w", err)
		}
	}
	for _, name := range []string{
		probeProgProbeCgroupRelease, probeProgProbeSwitch, probeProgProbeWaking, probeProgProbeWakeupNew,
		probeProgProbeIrqExit, probeProgProbeIrqEntry, probeProgProbeSoftirqExit, probeProgProbeSoftirqEntry,
	} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p.coll.Programs[name]})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		p.links = append(p.links, l)
	}
	return p.Visit()
}

// Visit looks at what each CPU runs now. A plan applied to the scheduler is
// taken up by each CPU at its next switch; after Visit it is everywhere.
func (p *Probe) Visit() error { return p.runOnEach(probeProgProbeVisit, "visit") }

// Mark makes the tiers' maxima begin anew: the longest waits and inversions
// that Read returns are then those since the mark. Sums and counts go on.
func (p *Probe) Mark() error { return p.runOnEach(probeProgProbeMark, "mark") }

// runOnEach runs a program of the probe on every CPU.
func (p *Probe) runOnEach(program, verb string) error {
	if p.coll == nil {
		return fmt.Errorf("%s CPUs: %w by this process", verb, ErrNotMeasured)
	}
	const onCPU = 1 // BPF_F_TEST_RUN_ON_CPU
	for cpu := range p.nrCPUs {
		_, err := p.coll.Programs[program].Run(&ebpf.RunOptions{CPU: uint32(cpu), Flags: onCPU})
		if errors.Is(err, unix.ENXIO) {
			continue // offline; measured from its first switch
		}
		if err != nil {
			return fmt.Errorf("%s CPU %d: %w", verb, cpu, err)
		}
	}
	return nil
}

// Apply makes the probe measure by a plan of its own.
func (p *Probe) Apply(plan policy.Plan) error {
	if p.plans == nil {
		return errors.New("apply plan to probe: it measures by the scheduler's plan")
	}
	next, err := p.plans.fill(plan)
	if err != nil {
		return err
	}
	// Nobody else writes this plan: its generation needs no comparison.
	if err := p.plans.generation.Put(uint32(0), next); err != nil {
		return fmt.Errorf("apply plan: %w", err)
	}
	return p.Visit()
}

// pin publishes the maps for readers, all at once.
func (p *Probe) pin() error {
	staging := stagingDir(p.pinDir)
	if err := os.RemoveAll(staging); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return pinDirError(err)
	}
	for _, name := range probePins {
		m := p.coll.Maps[name]
		if err := m.Pin(filepath.Join(staging, name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	if err := os.RemoveAll(p.pinDir); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	if err := os.Rename(staging, p.pinDir); err != nil {
		return fmt.Errorf("publish pin directory: %w", err)
	}
	return nil
}

// OpenProbe returns a handle on what another process measures, for reading
// only. The error wraps ErrNotMeasured if there is none.
func OpenProbe(pinDir string) (_ *Probe, err error) {
	nrCPUs, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	maps := make(map[string]*ebpf.Map)
	defer func() {
		if err != nil {
			closeMaps(maps)
		}
	}()
	for _, name := range probePins {
		m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, name), nil)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s holds no %s", ErrNotMeasured, pinDir, name)
		}
		if err != nil {
			return nil, fmt.Errorf("open pinned %s: %w", name, err)
		}
		maps[name] = m
	}
	p := &Probe{}
	if p.readings, err = newReadings(maps, nrCPUs); err != nil {
		return nil, err
	}
	return p, nil
}

// Close stops measuring, if it was this handle that did.
func (p *Probe) Close() error {
	if p.coll == nil {
		closeMaps(p.maps)
		return nil
	}
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	if p.pinDir != "" {
		errs = append(errs, os.RemoveAll(p.pinDir), os.RemoveAll(stagingDir(p.pinDir)))
	}
	p.coll.Close()
	return errors.Join(errs...)
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}
