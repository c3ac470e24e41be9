// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/temper-sched/temper/internal/bench"
)

// Caveats says what the figures cannot say.
func (s *Section) Caveats() []string {
	out := []string{s.clockCaveat()}
	if s.Machine.Cluster != nil {
		out = append(out, "The node is a real kubelet's. `eevdf` is Temper's agent in safe mode and `temper` the same agent attached, by turns on one boot, so that seeds differ by their arrivals and by what the node did meanwhile. The agent's probe runs only while it is attached; its cost is temper's.")
	}
	out = append(out, s.seedsCaveat())
	if text := s.requestsCaveat(); text != "" {
		out = append(out, text)
	}
	out = append(out, s.limitCaveats()...)
	switch kind := s.Scenario.KindOf(); {
	case kind.Tool:
		out = append(out, "The client is the database's own program, on the last CPU, which is its alone. Without a rate the loop is closed: a slow answer delays the next question, so that a stop counts once for each connection. With one the latency is from the moment a transaction was due, and the schedule lag, most of it waiting for a free connection, is part of it.")
	case kind.Server:
		out = append(out, fmt.Sprintf("Open loop, %s arrivals, latency from the intended send time. Client and server share the node; the last CPU is the client's alone.", s.Scenario.Load.Arrivals))
	}
	if p := s.Main; p != nil && p.Climbs() {
		out = append(out, s.backgroundCaveat()+fmt.Sprintf(" Harvest is background's share of what all else left on the pods' CPUs; with fewer %ss than CPUs it cannot reach all.", p.Neighbour))
	}
	if s.Arm(ours) != nil && s.Main != nil && s.Main.cell(ours, 0).Inversion.Known() {
		out = append(out, s.probeCaveat())
	}
	var lacks []string
	for _, a := range s.Lacks() {
		lacks = append(lacks, fmt.Sprintf("%s has all windows of %d of %s", a.Arm, a.Whole, number(a.Planned, "seed")))
	}
	for _, topology := range s.Absent {
		lacks = append(lacks, topology+" has no window")
	}
	if len(lacks) > 0 {
		out = append(out, fmt.Sprintf("Less is here than was planned: %s. The campaign has not ended, or windows were taken out.", list(lacks)))
	}
	if n := len(s.Void); n > 0 {
		out = append(out, fmt.Sprintf("%d of %s are void and enter no figure; they are kept in the record file and listed below with their reasons.", n, number(s.Windows, "window")))
	}
	return out
}

// backgroundCaveat says what runs beside the primary, and what that leaves out.
func (s *Section) backgroundCaveat() string {
	if len(s.Scenario.Background) == 0 {
		return "Background is spinners: they want every cycle, touch no memory and make no system calls. Work that shares caches or locks with the primary can hurt it in ways that no scheduler sees."
	}
	var does []string
	for _, name := range s.Scenario.Background {
		what := "not known to this program"
		if b := bench.BatchOf(name); b != nil {
			what = b.Does
		}
		does = append(does, fmt.Sprintf("%s (%s)", name, what))
	}
	return fmt.Sprintf("Background is stress-ng, each pod one of its stressors in turn: %s. The kernel works for them in stretches in which no scheduler can preempt them. How much of a CPU each pod got is in the records, by name; share farthest off is how far one of them, at most, is from its weight's part of what all got, and one that wants less counts too.", list(does))
}

func (s *Section) probeCaveat() string {
	var without []string
	for _, a := range s.Arms {
		if a.NoProbe {
			without = append(without, a.Name)
		}
	}
	const runs = "The probe that measures wakeup delay and inversion runs in every arm"
	if len(without) == 0 {
		return runs + " and is part of every latency."
	}
	return fmt.Sprintf("%s but %s, and is part of every latency of the others.", runs, list(without))
}

const virtualCaveat = "Time is virtual: one instruction is one nanosecond, and each vCPU has a clock of its own. The figures measure what the scheduler decides and how many instructions that takes. There are no caches, SMT cost, NUMA, C-states or frequencies in them, and they are not the latencies of any real machine."

func (s *Section) clockCaveat() string {
	switch s.Machine.Clock {
	case bench.ClockOpen:
		return virtualCaveat + " The guest talks to a control plane outside of it, whose answers come when they come: this cannot be deterministic, a repetition gives other figures, and ratios within this record are what counts. No target is judged by it."
	case bench.ClockPerVCPU:
		return virtualCaveat
	case bench.ClockShared:
		return "Time is virtual and all vCPUs share one instruction clock: with more busy vCPUs each runs slower, under any scheduler. Compare arms at equal density only, with `static` as the occupied control, never densities with each other. No caches, SMT cost, NUMA, C-states or frequencies."
	}
	return "Time is the host's: whatever else ran on it is in the figures, and a repetition gives others. Nothing here may be put beside figures of virtual time."
}

func between(few, most int64) string {
	if few == most {
		return rate(float64(few))
	}
	return rate(float64(few)) + " to " + rate(float64(most))
}

// requests is the smallest and largest number of requests behind a step.
func (s *Section) requests() (few, most int64) {
	for _, p := range s.Points {
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				if n := c.Requests; n > 0 {
					if few == 0 || n < few {
						few = n
					}
					most = max(most, n)
				}
			}
		}
	}
	return few, most
}
