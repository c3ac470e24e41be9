// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"maps"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Cell is what all valid windows of one arm at one step measured, by seed.
type Cell struct {
	Key
	Rate    float64
	Windows int
	PodCPUs int
	// Lag is the client's own, RunDelay its largest share of a window.
	Lag      stats.Counts
	RunDelay float64
	// Delay is from a thread's waking until it runs, by tier, Parts what the
	// latency is made of, Pods each pod's CPU time.
	Delay map[string]stats.BySeed
	Parts map[string]stats.BySeed
	Pods  []*Pod
	// Limits are the limited cgroups, the pod's first.
	Limits []*Limit
	// InversionMax is the longest that a critical thread waited while a lower
	// tier ran where it may run; WorstWait the longest wait of all, by tier.
	InversionMax time.Duration
	WorstWait    map[string]time.Duration
	// Void are the reasons of the windows left out, Voids how many those are.
	Void  []string
	Voids int

	tried   map[uint64]bool      // by seed
	visits  map[int]stats.BySeed // latencies by visit of the step: up the ladder, down
	answers map[int]stats.Values // by visit too
	sums    map[sum]stats.Values
	values  map[string]stats.Values
	most    map[string]float64 // of values, in one window
}

// Pod is what one pod used at a step.
type Pod struct {
	Name    string
	Tier    string
	Weight  int
	Threads int
	CPUTime stats.Values // nanoseconds by seed
}

// sum names a figure that windows of a seed add up.
type sum int

const (
	length sum = iota
	background
	left // by critical and system work, on the pods' CPUs
	critical
	inversion
	criticalRan // by the probe
	ops
	answered
	requests
	windows
)

func newCell(key Key, rate float64) *Cell {
	return &Cell{
		Key: key, Rate: rate, tried: map[uint64]bool{},
		Delay: map[string]stats.BySeed{}, Parts: map[string]stats.BySeed{}, WorstWait: map[string]time.Duration{},
		visits: map[int]stats.BySeed{}, answers: map[int]stats.Values{}, sums: map[sum]stats.Values{}, values: map[string]stats.Values{}, most: map[string]float64{},
	}
}

// Tried is how many seeds have a window there, valid or void.
func (c *Cell) Tried() int { return len(c.tried) }

// Valid says whether the cell has figures.
func (c *Cell) Valid() bool { return c.Windows > 0 }

func (c *Cell) add(rec *bench.Record) {
	w, seed := &rec.Window, rec.Seed
	c.Windows++
	c.PodCPUs = w.Ledger.PodCPUs
	visit := rec.Scenario.Visit(w.Step)
	if w.Primary.Latency != nil {
		if c.visits[visit] == nil {
			c.visits[visit] = stats.BySeed{}
		}
		c.visits[visit].Add(seed, w.Primary.Latency)
	}
	for name, hist := range w.Primary.Parts {
		addHist(c.Parts, name, seed, hist)
	}
	for name, value := range w.Primary.Values {
		addTo(c.values, name, seed, value)
		c.most[name] = max(c.most[name], value)
	}
	addTo(c.answers, visit, seed, w.Primary.Achieved*rec.Scenario.Load.Window.Seconds())
	c.Lag = c.Lag.Plus(stats.CountsOf(w.Primary.Lag))
	c.RunDelay = max(c.RunDelay, float64(w.Primary.RunDelay)/float64(rec.Scenario.Load.Window))
	c.addSums(rec)
	c.addPods(w.Pods, seed)
	c.addLimits(w, seed)
	c.addProbe(w, seed)
}

func (c *Cell) addSums(rec *bench.Record) {
	l, p := rec.Window.Ledger, rec.Window.Primary
	window := rec.Scenario.Load.Window.Seconds()
	for name, value := range map[sum]float64{
		length: float64(l.Length), background: float64(l.Background), critical: float64(l.Critical),
		left: float64(l.Left()),
		ops:  float64(p.Ops), answered: p.Achieved * window, requests: float64(p.Requests), windows: 1,
	} {
		addTo(c.sums, name, rec.Seed, value)
	}
}

func (c *Cell) addPods(pods []bench.Pod, seed uint64) {
	for _, p := range pods {
		i := slices.IndexFunc(c.Pods, func(q *Pod) bool { return q.Name == p.Name })
		if i < 0 {
			c.Pods = append(c.Pods, &Pod{Name: p.Name, Tier: p.Tier, Weight: p.Weight, Threads: p.Threads, CPUTime: stats.Values{}})
			i = len(c.Pods) - 1
		}
		c.Pods[i].CPUTime[seed] += float64(p.CPUTime)
	}
}

func (c *Cell) addProbe(w *bench.Window, seed uint64) {
	if w.Probe == nil {
		return
	}
	for tier, t := range w.Probe.Tiers {
		addHist(c.Delay, tier, seed, t.Delay)
		c.WorstWait[tier] = max(c.WorstWait[tier], t.WorstWait)
	}
	t := w.Probe.Tiers["critical"]
	c.InversionMax = max(c.InversionMax, t.InversionMax)
	addTo(c.sums, inversion, seed, float64(t.Inversion))
	addTo(c.sums, criticalRan, seed, float64(t.CPUTime))
}

func addHist(into map[string]stats.BySeed, name string, seed uint64, h *bench.Hist) {
	if h == nil || h.Count() == 0 {
		return
	}
	if into[name] == nil {
		into[name] = stats.BySeed{}
	}
	into[name].Add(seed, h)
}

func addTo[K comparable](into map[K]stats.Values, name K, seed uint64, value float64) {
	if into[name] == nil {
		into[name] = stats.Values{}
	}
	into[name][seed] += value
}

// Latency is what the scenario measures, all visits of the step together.
func (c *Cell) Latency() stats.BySeed {
	return c.latency(func(int, uint64) bool { return true })
}

func (c *Cell) latency(counts func(visit int, seed uint64) bool) stats.BySeed {
	all := stats.BySeed{}
	for _, visit := range slices.Sorted(maps.Keys(c.visits)) {
		for seed, latency := range c.visits[visit] {
			if counts(visit, seed) {
				all[seed] = all[seed].Plus(latency)
			}
		}
	}
	return all
}

// shares says whether c was visited, in that seed, where base was.
func (c *Cell) shares(base *Cell) func(visit int, seed uint64) bool {
	return func(visit int, seed uint64) bool {
		_, mine := c.visits[visit][seed]
		_, its := base.visits[visit][seed]
		return mine && its
	}
}

// Visits is the latency at the step's first and second visit, on the ladder's
// way up and down; ok is false if there was only one way.
func (c *Cell) Visits() (up, down stats.BySeed, ok bool) {
	visits := slices.Sorted(maps.Keys(c.visits))
	if len(visits) < 2 {
		return nil, nil, false
	}
	return c.visits[visits[0]], c.visits[visits[len(visits)-1]], true
}

// Tail estimates a quantile of the latency, in nanoseconds.
func (c *Cell) Tail(q float64) stats.Estimate { return stats.Quantile(c.Latency(), q) }

// TailRatio estimates how many times base's quantile that of c is, over the visits
// that both had: those had the same arrivals. A ladder is at its foot twice and at
// its top once, and the way down would set the luck of other arrivals against it.
func (c *Cell) TailRatio(base *Cell, q float64) stats.Estimate {
	both := c.shares(base)
	return stats.QuantileRatio(base.latency(both), c.latency(both), q)
}

// Paired is how many requests TailRatio has of the cell that has fewer.
func (c *Cell) Paired(base *Cell) int64 {
	both := c.shares(base)
	return min(c.latency(both).Total(), base.latency(both).Total())
}

// BackgroundCPUs estimates how many CPUs' worth of time background work got.
func (c *Cell) BackgroundCPUs() stats.Estimate { return c.ratio(length, background) }

// CriticalCPUs is the same for the critical pod.
func (c *Cell) CriticalCPUs() stats.Estimate { return c.ratio(length, critical) }

// littleLeft is the share of the pods' CPUs below which nobody can be said to have had
// what was left of them: the ledger's parts are measured apart.
const littleLeft = 0.05

// Harvest estimates background's share of what critical and system work left, where
// that was anything.
func (c *Cell) Harvest() stats.Estimate {
	if c.ratio(length, left).Figure < littleLeft*float64(c.PodCPUs) {
		return stats.None()
	}
	return c.ratio(left, background)
}

// BackgroundRatio estimates how many times base's background time that of c is, in
// equal time.
func (c *Cell) BackgroundRatio(base *Cell) stats.Estimate {
	return stats.Ratio(base.per(length, base.sums[background]), c.per(length, c.sums[background]))
}

// Inversion estimates inversion time as a share of critical CPU time.
func (c *Cell) Inversion() stats.Estimate {
	if sums := c.sums[criticalRan]; len(sums) > 0 && positive(sums) {
		return c.ratio(criticalRan, inversion)
	}
	return stats.None()
}

// Ops estimates the iterations done in a second.
func (c *Cell) Ops() stats.Estimate {
	e := c.ratio(length, ops)
	e.Figure, e.Low, e.High = e.Figure*1e9, e.Low*1e9, e.High*1e9
	if e.Figure == 0 {
		return stats.None()
	}
	return e
}

// Answered estimates a window's answers, or iterations ended, as a share of base's, over
// the visits that both had, as TailRatio does.
func (c *Cell) Answered(base *Cell) stats.Estimate {
	return stats.Ratio(base.answersBeside(c), c.answersBeside(base))
}

// answersBeside sums what each seed answered in the visits that other had too.
func (c *Cell) answersBeside(other *Cell) stats.Values {
	sums := stats.Values{}
	for _, visit := range slices.Sorted(maps.Keys(c.answers)) {
		for seed, n := range c.answers[visit] {
			if _, ok := other.answers[visit][seed]; ok {
				sums[seed] += n
			}
		}
	}
	return sums
}

// Achieved estimates what was answered in a second of a window, where anything was.
func (c *Cell) Achieved(window time.Duration) stats.Estimate {
	e, length := c.ratio(windows, answered), window.Seconds()
	if !e.Known() || e.Figure == 0 {
		return stats.None()
	}
	e.Figure, e.Low, e.High = e.Figure/length, e.Low/length, e.High/length
	return e
}

// Value estimates the mean per window of a figure that the primary gave by name.
func (c *Cell) Value(name string) stats.Estimate {
	return stats.Ratio(c.sums[windows], c.values[name])
}

// MostOf is the largest that the primary gave by name, of all windows.
func (c *Cell) MostOf(name string) float64 { return c.most[name] }

// ValueRatio estimates how many times base's mean figure c's is.
func (c *Cell) ValueRatio(base *Cell, name string) stats.Estimate {
	return stats.Ratio(base.per(windows, base.values[name]), c.per(windows, c.values[name]))
}

// Values lists the names of the primary's further figures.
func (c *Cell) Values() []string { return slices.Sorted(maps.Keys(c.values)) }

// per divides what a seed summed by another of its sums. Cells are compared so, or by visit: a
// ladder is at its foot twice and at its top once, and a void window is missing in one.
func (c *Cell) per(unit sum, sums stats.Values) stats.Values {
	out := stats.Values{}
	for seed, v := range sums {
		if n := c.sums[unit][seed]; n > 0 {
			out[seed] = v / n
		}
	}
	return out
}

func (c *Cell) ratio(of, share sum) stats.Estimate { return stats.Ratio(c.sums[of], c.sums[share]) }

func positive(v stats.Values) bool {
	for _, x := range v {
		if x <= 0 {
			return false
		}
	}
	return true
}

// PodCPUsOf estimates how many CPUs' worth of time a pod got.
func (c *Cell) PodCPUsOf(p *Pod) stats.Estimate { return stats.Ratio(c.sums[length], p.CPUTime) }

// TierCPUs estimates the same for all pods of a tier.
func (c *Cell) TierCPUs(tier string) stats.Estimate {
	return stats.Ratio(c.sums[length], c.usedBy(tier))
}

// TierRatio estimates how many times what a tier's pods got in base they get here, in
// equal time.
func (c *Cell) TierRatio(base *Cell, tier string) stats.Estimate {
	return stats.Ratio(base.per(length, base.usedBy(tier)), c.per(length, c.usedBy(tier)))
}

func (c *Cell) usedBy(tier string) stats.Values {
	sums := stats.Values{}
	for _, p := range c.Pods {
		if p.Tier != tier {
			continue
		}
		for seed, ns := range p.CPUTime {
			sums[seed] += ns
		}
	}
	return sums
}
