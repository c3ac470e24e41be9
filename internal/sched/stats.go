// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/tier"
)

// WaitBound is how long a runnable thread waits at most: WAIT_BOUND_NS of
// bpf/policy.bpf.h.
const WaitBound = time.Second

// Measure starts the probe by the plan in force, whatever plans follow. It
// measures until it is closed or this process ends; Stats of any process reads it.
func (s *Scheduler) Measure() (*Probe, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return StartProbe(ProbeConfig{Maps: s.maps, PinDir: probeDir(s.pinDir)})
}

// probeDir is DefaultProbeDir for DefaultPinDir.
func probeDir(pinDir string) string { return pinDir + "_probe" }

// Stats returns what the scheduler counts about itself, what the kernel counts
// about it, and what the probe measured. The error wraps ErrNotMeasured if no
// process runs the probe.
func (s *Scheduler) Stats() (Stats, error) {
	probe, err := OpenProbe(probeDir(s.pinDir))
	if err != nil {
		return Stats{}, err
	}
	defer probe.Close()
	stats, err := probe.Read()
	if err != nil {
		return Stats{}, err
	}
	stats.WaitBound = WaitBound
	for _, t := range tier.All() {
		if err := s.count(&stats.Tiers[t], t); err != nil {
			return Stats{}, err
		}
	}
	events, err := readEvents(os.DirFS(schedExtDir))
	if err != nil {
		return Stats{}, err
	}
	maps.Copy(stats.Events, events)
	return stats, nil
}

// Counters returns what the scheduler counts about itself, by name and tier, and
// what the kernel counts about it: a short reading, without the probe's.
func (s *Scheduler) Counters() (map[string]int64, error) {
	out, err := readEvents(os.DirFS(schedExtDir))
	if err != nil {
		return nil, err
	}
	if out == nil {
		out = make(map[string]int64)
	}
	for _, t := range tier.All() {
		var of TierStats
		if err := s.count(&of, t); err != nil {
			return nil, err
		}
		out["preemptions_"+t.String()] = int64(of.Preemptions)
		out["preempted_"+t.String()] = int64(of.Preempted)
		out["rescued_"+t.String()] = int64(of.Rescued)
	}
	return out, nil
}

// count adds the scheduler's own counters of a tier.
func (s *Scheduler) count(stats *TierStats, t tier.Tier) error {
	if err := s.check(); err != nil {
		return err
	}
	var perCPU []schedTemperTierCounters
	if err := s.maps[schedMapTierCounters].Lookup(uint32(t), &perCPU); err != nil {
		return fmt.Errorf("read counters of tier %s: %w", t, err)
	}
	for _, c := range perCPU {
		stats.Preemptions += c.Preemptions
		stats.Preempted += c.Preempted
		stats.Rescued += c.Rescued
		stats.WorstWait = max(stats.WorstWait, time.Duration(c.WorstWaitNs))
	}
	return nil
}

// readEvents reads the kernel's counters, whatever their names: each version
// has more of them. A kernel that shows none has no such file.
func readEvents(sys fs.FS) (map[string]int64, error) {
	text, err := fs.ReadFile(sys, filepath.Join("root", "events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read sched_ext events: %w", err)
	}
	events := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read sched_ext event %s: %w", name, err)
		}
		events[name] = n
	}
	return events, nil
}
