// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// limitFields are the columns of what a cell's limited cgroups did; none where
// the scenario limits nothing.
func (s *Section) limitFields() []field {
	limited := s.Scenario.Primary.Limited()
	if len(limited) == 0 {
		return nil
	}
	out := []field{estimated("p95", func(c Cell) stats.Estimate { return c.Tail(.95) }, micros)}
	for _, of := range limited {
		if of.Name == bench.ContainerLimit {
			continue // its pod's limit is the same
		}
		name, head := of.Name, of.Name+" "
		if len(s.Scenario.Primary.Containers) == 0 {
			head = ""
		}
		for _, span := range []time.Duration{bench.LongSpan, bench.ShortSpan} {
			out = append(out, field{
				head + "use of quota over " + spanWord(span), func(c Cell) string { return used(c.Limit(name), span) },
				func(c Cell) bool { return used(c.Limit(name), span) != none },
			})
		}
		stopped := func(c Cell) time.Duration {
			if l := c.Limit(name); l != nil {
				return l.Stopped
			}
			return -1
		}
		out = append(out, field{
			head + "longest stop with work to do", func(c Cell) string { return micros(float64(stopped(c))) },
			func(c Cell) bool { return stopped(c) >= 0 },
		}, estimated(head+"periods throttled", func(c Cell) stats.Estimate {
			if l := c.Limit(name); l != nil {
				return l.Throttled()
			}
			return stats.None()
		}, percent))
	}
	return out
}

func spanWord(span time.Duration) string {
	if span >= time.Second {
		return fmt.Sprintf("%.0f%ss", span.Seconds(), nbsp)
	}
	return fmt.Sprintf("%d%sms", span.Milliseconds(), nbsp)
}

// used shows the least and the most use of a limit over any span of a length.
func used(l *ladder.Limit, span time.Duration) string {
	if l == nil {
		return none
	}
	u, ok := l.Uses[span]
	if !ok {
		return none
	}
	return fmt.Sprintf("%.3f–%.3f", u.Min, u.Max)
}

// limitHeadline says what a limit does to the tail, to the throughput and to the
// time in which nobody runs, without background where there is any.
func (s *Section) limitHeadline() []string {
	p, window := s.Main, s.Scenario.Load.Window
	for i := range s.Points {
		if s.Points[i].Rate == 0 {
			p = &s.Points[i] // where the limit binds
			break
		}
	}
	var tails, done, stops []string
	for _, r := range p.Rivals() {
		c := r.at(p.Densities[0])
		if !c.P99.Known() {
			continue
		}
		tails = append(tails, fmt.Sprintf("%s under %s", with(c.P99, micros), r.Name))
		done = append(done, fmt.Sprintf("%s under %s", rate(c.Achieved(window)), r.Name))
		if l := c.Limit(bench.PodLimit); l != nil && l.Stopped >= 0 {
			stops = append(stops, fmt.Sprintf("%s under %s", micros(float64(l.Stopped)), r.Name))
		}
	}
	if len(tails) == 0 {
		return nil
	}
	at := ""
	if p.Name != "" {
		at = " at " + p.Name
	}
	out := []string{
		fmt.Sprintf("Limited to %s CPUs, %s%s is %s.", plain(float64(s.Scenario.Primary.LimitMilliCPU)/1000), s.Subject(), at, list(tails)),
		fmt.Sprintf("Done in a second: %s.", list(done)),
	}
	if len(stops) > 0 {
		out = append(out, fmt.Sprintf("The longest that there was work and none of its threads ran is %s.", list(stops)))
	}
	return out
}

// limitCaveats say how use of a limit was measured.
func (s *Section) limitCaveats() []string {
	if s.Scenario.Primary.LimitMilliCPU == 0 {
		return nil
	}
	by := map[string]bool{}
	for _, p := range s.Points {
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				for _, l := range c.Limits {
					by[l.By] = true
				}
			}
		}
	}
	var how []string
	if by[bench.UseByStamps] {
		how = append(how, "Use of quota is by the threads' own stamps after each unit of work, over every span that begins with a millisecond; it is exact to one unit of work for each thread that stops or starts at a span's end. The figures are the least and the most of all windows.")
	}
	if by[bench.UseBySamples] {
		how = append(how, "Use of quota is by the cgroup's own usage, read every 100"+nbsp+"ms from the client's CPU. The kernel books a running thread's time at its ticks, so that a span of 100"+nbsp+"ms may be off by several percent, one of a second by a tenth of that. No target is judged by it.")
	}
	how = append(how, "The limit is cpu.max, as kubelet sets it on the pod and on its container. The kernel's count of throttled periods exists under its own scheduler only.")
	return []string{strings.Join(how, " ")}
}
