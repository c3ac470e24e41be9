// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/work"
)

// cgroup is where the program lives: in a container of its pod.
func (p program) cgroup() string {
	if p.container != "" {
		return p.pod + "/" + p.container
	}
	return p.pod + ctr
}

// requests returns the programs that compute requests: one, or one for each of
// the pod's containers.
func (s *selfMeasured) requests(spec work.Spec) []program {
	p := s.node.spec.Scenario.Primary
	spec.Kind, spec.Work, spec.Busy = work.KindRequests, micros(p, "unit_us"), micros(p, "request_us")
	if len(p.Containers) == 0 {
		return []program{{pod: critical, spec: spec}}
	}
	var out []program
	threads := 0
	for _, c := range p.Containers {
		threads += c.Threads
	}
	for i, c := range p.Containers {
		of := spec
		of.Threads, of.Rate = c.Threads, spec.Rate*float64(c.Threads)/float64(threads)
		of.Seed += uint64(i) << 48
		out = append(out, program{name: c.Name, pod: critical, container: c.Name, spec: of})
	}
	return out
}

// joinRequests adds up what containers of one pod did together.
func joinRequests(total, r bench.Result) bench.Result {
	total.Achieved += r.Achieved
	total.Offered += r.Offered
	for _, name := range []string{work.ValueBusy, work.ValueClaimed} {
		total.Values[name] += r.Values[name]
	}
	return total
}

// limits says what was used of each limit, by the programs' own notes.
func (r *running) limits(into []bench.Limit) error {
	if len(r.traces) == 0 {
		return nil
	}
	for i := range into {
		l := &into[i]
		traces := r.traces
		if l.Name != bench.PodLimit && len(r.traces) > 1 {
			traces = traces[i-1 : i]
		}
		all, err := work.JoinTraces(traces)
		if err != nil {
			return fmt.Errorf("trace %s: %w", l.Name, err)
		}
		stopped := all.Stopped()
		l.Stopped = &stopped
		if l.Before.Quota > 0 {
			l.By = bench.UseByStamps
			l.Uses = all.Uses(work.Stretches(l.Before, l.Changes, r.scenario.Load.Window))
		}
	}
	return nil
}
