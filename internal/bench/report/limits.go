// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
)

// Limits shows what the limited cgroups did; empty where nothing is limited.
func (s *Section) Limits() Table {
	spans := []time.Duration{bench.LongSpan, bench.ShortSpan}
	t := Table{Title: "CPU limits", Head: []string{
		"arm", "case", s.Scenario.Neighbour() + "s", "cgroup", "use of quota over " + spanWord(spans[0]), "use of quota over " + spanWord(spans[1]),
		"longest stop with work to do", "periods throttled", "work a second",
	}}
	limited := slices.DeleteFunc(s.Scenario.Primary.Limited(), func(l bench.Limited) bool {
		return l.Name == bench.ContainerLimit // its pod's limit is the same
	})
	for i := range s.Points {
		p := &s.Points[i]
		for _, r := range p.Rows {
			for _, c := range r.Cells {
				for j, of := range limited {
					l := c.Limit(of.Name)
					if l == nil {
						continue
					}
					stopped, work := none, none
					if l.Stopped >= 0 {
						stopped = micros(float64(l.Stopped))
					}
					if j == 0 { // of all of them together
						work = with(c.Achieved(s.Scenario.Load.Window), rate)
					}
					t.Rows = append(t.Rows, []string{
						r.Name, nameOr(p.Name, none), strconv.Itoa(c.Density), of.Name, used(l, spans[0]), used(l, spans[1]),
						stopped, with(l.Throttled(), percent), work,
					})
				}
			}
		}
	}
	return t.dense()
}

func spanWord(span time.Duration) string {
	if span >= time.Second {
		return fmt.Sprintf("%.0f%ss", span.Seconds(), nbsp)
	}
	return fmt.Sprintf("%d%sms", span.Milliseconds(), nbsp)
}

// used shows the least and the most use of a limit over any span of a length.
func used(l *ladder.Limit, span time.Duration) string {
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
		if !c.Tail.Known() {
			continue
		}
		tails = append(tails, fmt.Sprintf("%s under %s", with(c.Tail, micros), r.Name))
		done = append(done, fmt.Sprintf("%s under %s", with(c.Achieved(window), rate), r.Name))
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
		fmt.Sprintf("Limited to %s CPUs, %s%s is %s.", limitsInTurn(s.Scenario.Primary), s.Subject(p), at, list(tails)),
		fmt.Sprintf("Done in a second: %s.", list(done)),
	}
	if len(stops) > 0 {
		out = append(out, fmt.Sprintf("The longest that there was work and none of its threads ran is %s.", list(stops)))
	}
	return out
}

// limitsInTurn are the CPUs that a window's limits allow: "1.5", or "1.5, then 2.5".
func limitsInTurn(p bench.Primary) string {
	cpus := []string{plain(float64(p.LimitMilliCPU) / 1000)}
	for _, step := range p.LimitSteps {
		cpus = append(cpus, plain(float64(step.LimitMilliCPU)/1000))
	}
	return strings.Join(cpus, ", then ")
}

// limitedWaits is said where inversion is drawn of a limited pod. A thread that waits for
// tokens is runnable, at a gate or throttled by the kernel, and the probe, which is the same
// for all, does not know what for. Eight threads that saturate 1.5 CPUs count for 6.5 at any
// moment under us; where all of them run at once until they freeze, only while they freeze.
const limitedWaits = "A wait for the CPU limit counts too, under every arm: the probe knows no limits. Spread evenly, as under temper, such a wait is all beside background; in a pod that runs in bursts and freezes a part of it is behind the pod's own threads. Where the limit binds, the figure says little of tiers."

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
