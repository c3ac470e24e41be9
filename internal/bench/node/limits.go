// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// limited is a cgroup with a limit, as kubelet sets it.
type limited struct {
	bench.Limited
	path string
}

// limited lists the primary's.
func (n *node) limited() []limited {
	var out []limited
	for _, l := range n.spec.Scenario.Primary.Limited() {
		path := critical
		if l.Name != bench.PodLimit {
			path += "/" + l.Name
		}
		out = append(out, limited{l, path})
	}
	return out
}

// containers are the cgroups of a critical pod's containers, below it.
func containers(p bench.Primary) []string {
	if len(p.Containers) == 0 {
		return []string{ctr}
	}
	var out []string
	for _, c := range p.Containers {
		out = append(out, "/"+c.Name)
	}
	return out
}

// setLimits puts the arm's limits in force, as they are at the beginning of
// every step.
func (n *node) setLimits() error {
	for _, l := range n.limited() {
		if err := n.tree.limit(l.path, n.spec.Arm.Quota(l.LimitMilliCPU)); err != nil {
			return err
		}
	}
	return nil
}

// noQuota is cpu.max's word for no limit.
const noQuota = "max"

// limit sets cpu.max and cpu.max.burst. The kernel takes no burst above the
// quota, so that the old one goes first.
func (t *tree) limit(path string, q bench.Quota) error {
	quota := noQuota
	if q.Quota > 0 {
		quota = strconv.FormatInt(q.Quota.Microseconds(), 10)
	}
	if now, err := t.quota(path); err != nil {
		return err
	} else if now.Burst > 0 {
		if err := t.set(path, "cpu.max.burst", "0"); err != nil {
			return err
		}
	}
	if err := t.set(path, "cpu.max", fmt.Sprintf("%s %d", quota, q.Period.Microseconds())); err != nil {
		return err
	}
	if q.Burst == 0 {
		return nil
	}
	return t.set(path, "cpu.max.burst", strconv.FormatInt(q.Burst.Microseconds(), 10))
}

// quota is what is in force.
func (t *tree) quota(path string) (bench.Quota, error) {
	limit, err := os.ReadFile(filepath.Join(t.root+path, "cpu.max"))
	if err != nil {
		return bench.Quota{}, fmt.Errorf("read limit of cgroup %s: %w", path, err)
	}
	burst, err := os.ReadFile(filepath.Join(t.root+path, "cpu.max.burst"))
	if err != nil {
		return bench.Quota{}, fmt.Errorf("read limit of cgroup %s: %w", path, err)
	}
	q, err := parseQuota(string(limit), string(burst))
	if err != nil {
		return q, fmt.Errorf("read limit of cgroup %s: %w", path, err)
	}
	return q, nil
}

// parseQuota reads cpu.max and cpu.max.burst.
func parseQuota(limit, burst string) (bench.Quota, error) {
	var q bench.Quota
	f := strings.Fields(limit)
	if len(f) != 2 {
		return q, fmt.Errorf("parse cpu.max: %q is not two words", limit)
	}
	var err error
	if f[0] != noQuota {
		if q.Quota, err = parseMicros(f[0]); err == nil && q.Quota == 0 {
			err = errors.New("a quota of nothing")
		}
	}
	if err == nil {
		q.Period, err = parseMicros(f[1])
	}
	if err == nil {
		q.Burst, err = parseMicros(strings.TrimSpace(burst))
	}
	if err != nil {
		return bench.Quota{}, fmt.Errorf("parse cpu.max %q with burst %q: %w", strings.TrimSpace(limit), strings.TrimSpace(burst), err)
	}
	return q, nil
}

// parseMicros reads a whole number of microseconds that is a duration.
func parseMicros(text string) (time.Duration, error) {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, err
	}
	const most = int64(1<<63-1) / int64(time.Microsecond)
	if us < 0 || us > most {
		return 0, fmt.Errorf("%d µs is no length of time", us)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// parseCPUStat reads a cgroup's cpu.stat.
func parseCPUStat(text string) (map[string]int64, error) {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("parse cpu.stat: %q is no name and number", strings.TrimSpace(line))
		}
		out[name] = n
	}
	if _, ok := out[bench.CountUsage]; !ok {
		return nil, fmt.Errorf("parse cpu.stat: no %s", bench.CountUsage)
	}
	return out, nil
}

// limitCounters are those of cpu.stat that limits are about.
var limitCounters = []string{bench.CountUsage, bench.CountPeriods, bench.CountThrottled, "throttled_usec", "nr_bursts", "burst_usec"}

// limitReading is one limited cgroup at one moment.
type limitReading struct {
	quota bench.Quota
	stat  map[string]int64
}

func (c *counters) readLimits() ([]limitReading, error) {
	var out []limitReading
	for _, l := range c.limited {
		q, err := c.tree.quota(l.path)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(c.tree.root+l.path, "cpu.stat"))
		if err != nil {
			return nil, fmt.Errorf("read counters of cgroup %s: %w", l.path, err)
		}
		stat, err := parseCPUStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("read counters of cgroup %s: %w", l.path, err)
		}
		out = append(out, limitReading{q, stat})
	}
	return out, nil
}

// limits is what happened to the limited cgroups between two readings.
func (c *counters) limits(before, after []limitReading, changes [][]bench.LimitChange) []bench.Limit {
	var out []bench.Limit
	for i, l := range c.limited {
		limit := bench.Limit{Name: l.Name, Before: before[i].quota, After: after[i].quota, Counters: map[string]bench.Count{}}
		if i < len(changes) {
			limit.Changes = changes[i]
		}
		for _, name := range limitCounters {
			if now, ok := after[i].stat[name]; ok {
				limit.Counters[name] = bench.Count{Before: before[i].stat[name], After: now}
			}
		}
		out = append(out, limit)
	}
	return out
}

// changeLimits makes the scenario's changes within the window, as kubelet does:
// where there is more, the pod has it first, where there is less, its container.
func (n *node) changeLimits(from time.Duration, into *[][]bench.LimitChange) []moment {
	var out []moment
	groups := n.limited()
	*into = make([][]bench.LimitChange, len(groups))
	last := n.spec.Scenario.Primary.LimitMilliCPU
	for _, step := range n.spec.Scenario.Primary.LimitSteps {
		order := slices.Clone(groups)
		if step.LimitMilliCPU < last {
			slices.Reverse(order)
		}
		last = step.LimitMilliCPU
		q := n.spec.Arm.Quota(step.LimitMilliCPU)
		out = append(out, moment{from + step.At, func() error {
			began := monotonic() - from
			for _, l := range order {
				if err := n.tree.limit(l.path, q); err != nil {
					return err
				}
			}
			done := monotonic() - from
			for i := range groups {
				(*into)[i] = append((*into)[i], bench.LimitChange{From: began, To: done, Quota: q})
			}
			return nil
		}})
	}
	return out
}

// moment is something that is due within the window.
type moment struct {
	at time.Duration
	do func() error
}

// carryOut does what is due, in order of time.
func carryOut(ctx context.Context, moments []moment) error {
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for _, m := range moments {
		if err := sleepUntil(ctx, m.at); err != nil {
			return err
		}
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}
