// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"math"

	"github.com/temper-sched/temper/internal/bench/stats"
)

// Share is a pod's part of what its tier's pods used together, and the part
// that its weight asks for.
type Share struct {
	Pod   *Pod
	Got   stats.Estimate
	Asked float64
	parts stats.Values // by seed
}

// Off is by how much the pod got more (or, below 0, less) than its weight asks
// for, as a share of that.
func (s Share) Off() stats.Estimate {
	off := func(got float64) float64 { return got/s.Asked - 1 }
	return stats.Estimate{Figure: off(s.Got.Figure), Low: off(s.Got.Low), High: off(s.Got.High), Seeds: s.Got.Seeds}
}

// Shares compares pods within their tiers. A tier with a single pod has nothing
// to compare; pods whose weights are not known are left out.
func (c *Cell) Shares() []Share {
	used, weight, pods := map[string]stats.Values{}, map[string]int{}, map[string]int{}
	for _, p := range c.Pods {
		if p.Weight <= 0 {
			continue
		}
		if used[p.Tier] == nil {
			used[p.Tier] = stats.Values{}
		}
		for seed, ns := range p.CPUTime {
			used[p.Tier][seed] += ns
		}
		weight[p.Tier] += p.Weight
		pods[p.Tier]++
	}
	var out []Share
	for _, p := range c.Pods {
		if p.Weight > 0 && pods[p.Tier] > 1 {
			parts := stats.Values{}
			for seed, ns := range p.CPUTime {
				parts[seed] = ns / used[p.Tier][seed]
			}
			out = append(out, Share{p, stats.Ratio(used[p.Tier], p.CPUTime), float64(p.Weight) / float64(weight[p.Tier]), parts})
		}
	}
	return out
}

// ShareError is the largest distance of a pod's share from what its weight asks
// for, without its sign, and that pod.
func (c *Cell) ShareError() (off stats.Estimate, pod string) {
	off = stats.None()
	for _, s := range c.Shares() {
		e := unsigned(s.Off())
		if e.Known() && (!off.Known() || e.High > off.High) {
			off, pod = e, s.Pod.Name
		}
	}
	return off, pod
}

// unsigned folds an estimate around 0 to its size.
func unsigned(e stats.Estimate) stats.Estimate {
	low, high := math.Abs(e.Low), math.Abs(e.High)
	if e.Low <= 0 && e.High >= 0 {
		return stats.Estimate{Figure: math.Abs(e.Figure), Low: 0, High: max(low, high), Seeds: e.Seeds}
	}
	return stats.Estimate{Figure: math.Abs(e.Figure), Low: min(low, high), High: max(low, high), Seeds: e.Seeds}
}

// Ratio estimates how many times base it is, over the seeds that both have.
func (s Share) Ratio(base Share) stats.Estimate { return stats.Ratio(base.parts, s.parts) }
