// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"fmt"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// shorter is the stock rival with the shortest period that kubelet is used with.
const shorter = "eevdf-10ms"

// stopsAt is the limit that the longest stop is stated for.
const stopsAt = 1.5

// limitsHeld holds use against quota, and looks for stops, where the threads
// themselves noted when they ran. What a counter sampled from outside says is
// too coarse. Less than the quota counts where the demand exceeds it: without a
// rate, for the pod, whose limit binds.
func limitsHeld(s set) []Part {
	var short, long struct{ least, most []sample }
	var stopped []sample
	s.of("requests").each(func(l *ladder.Ladder, point string, densities []int) {
		for _, d := range densities {
			c := l.Arm(ours).Cell(point, d)
			for _, limited := range l.Scenario.Primary.Limited() {
				where := fmt.Sprintf("%s, %s", place(l, point, d), limited.Name)
				saturated := c.Rate == 0 && limited.Name == bench.PodLimit
				extreme := func(v float64) sample { return of(l, where, exactly(v, c.CriticalCPUs().Seeds), c).extreme() }
				limit := c.Limit(limited.Name)
				if limit == nil {
					unknown := of(l, where, stats.None(), c)
					short.most, long.most = append(short.most, unknown), append(long.most, unknown)
					if saturated {
						short.least, long.least = append(short.least, unknown), append(long.least, unknown)
						if limited.LimitMilliCPU == stopsAt*1000 {
							stopped = append(stopped, unknown)
						}
					}
					continue
				}
				if u, ok := limit.Uses[bench.ShortSpan]; ok && limit.By == bench.UseByStamps {
					short.most = append(short.most, extreme(u.Max))
					if saturated {
						short.least = append(short.least, extreme(u.Min))
					}
				}
				if u, ok := limit.Uses[bench.LongSpan]; ok && limit.By == bench.UseByStamps {
					long.most = append(long.most, extreme(u.Max))
					if saturated {
						long.least = append(long.least, extreme(u.Min))
					}
				}
				if limit.Name == bench.PodLimit && limit.Stopped >= 0 && limit.Quota.CPUs() == stopsAt && !limit.Changed {
					stopped = append(stopped, extreme(float64(limit.Stopped)))
				}
			}
		}
	})
	return []Part{
		atLeast(.99, ratio).part("least use of the quota over 1 s", long.least),
		atMost(1.01, ratio).part("most use of the quota over 1 s", long.most),
		atLeast(.97, ratio).part("least use of the quota over 100 ms", short.least),
		atMost(1.03, ratio).part("most use of the quota over 100 ms", short.most),
		atMost(float64(3*time.Millisecond), duration).part("longest with runnable threads and none running", stopped),
	}
}

func ratio(v float64) string { return fmt.Sprintf("%.3f", v) }

// limitsPaid compares throughput and tail with the stock kernel's at the same
// limit, where nothing but the limit holds the work back.
func limitsPaid(s set) []Part {
	var done, tail, tailShorter []sample
	s.of("postgresql", "mariadb", "requests").each(func(l *ladder.Ladder, point string, densities []int) {
		for _, d := range densities {
			c := l.Arm(ours).Cell(point, d)
			if p := l.Scenario.Primary; c.Rate > 0 || p.LimitMilliCPU == 0 || len(p.LimitSteps) > 0 || len(p.Containers) > 0 {
				continue
			}
			base, other := l.Arm(stock).Cell(point, d), l.Arm(shorter).Cell(point, d)
			where := place(l, point, d)
			done = append(done, of(l, where, c.Answered(base), c, base))
			tail = append(tail, of(l, where, c.TailRatio(base, .99), c, base))
			tailShorter = append(tailShorter, of(l, where, c.TailRatio(other, .99), c, other))
		}
	})
	return []Part{
		atLeast(.99, factor).part("throughput against eevdf at the same limit", done),
		atMost(.25, factor).part("p99 against eevdf with a period of 100 ms", tail),
		atMost(.5, factor).part("p99 against eevdf with a period of 10 ms", tailShorter),
	}
}
