// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math"
	"time"
)

// The bounds of a valid window.
const (
	// ledgerTolerance is how far the ledger's parts may be from its whole.
	ledgerTolerance = 0.005
	// lagBound is the client's own p99 delay that is still no bottleneck.
	lagBound = 50 * time.Microsecond
	// runDelayRatio is the share of the window that the client may have
	// waited for its CPU.
	runDelayRatio = 0.01
	// offeredTolerance is how far the drawn arrivals may be from the rate.
	offeredTolerance = 0.1
	// quietRatio is the idle share to be reached before the first window.
	quietRatio = 0.99
)

// Judge decides whether a record may be used. It reads nothing but the record,
// so that anyone can repeat the verdict later. A void record is kept, with all
// its reasons, and no figure is made of it.
func Judge(r *Record) Verdict {
	var reasons []string
	reasons = append(reasons, judgeSched(r.Arm.Ops, r.Window.Sched)...)
	reasons = append(reasons, judgeClient(r.Scenario.Load, r.Window.Client)...)
	if off := r.Window.Ledger.Error(); math.Abs(off) > ledgerTolerance {
		reasons = append(reasons, fmt.Sprintf("CPU ledger off by %+.2f %%", 100*off))
	}
	if idle := r.Window.IdleBefore; idle < quietRatio {
		reasons = append(reasons, fmt.Sprintf("node was only %.1f %% idle before the first window", 100*idle))
	}
	return Verdict{Valid: len(reasons) == 0, Reasons: reasons}
}

// judgeSched demands that the expected scheduler was live in every sample. The
// sequence number proves it for the time between them: every attach moves it.
func judgeSched(ops string, samples []SchedSample) []string {
	if len(samples) < 2 {
		return []string{"the live scheduler was not sampled before and after"}
	}
	for _, s := range samples {
		live := ""
		if s.State != "" && s.State != "disabled" {
			live = s.Ops
		}
		if live != ops || (ops != "" && s.State != "enabled") {
			return []string{fmt.Sprintf("scheduler at %v was %s (state %q), expected %s", s.At, schedName(live), s.State, schedName(ops))}
		}
		if s.EnableSeq != samples[0].EnableSeq {
			return []string{fmt.Sprintf("a scheduler was attached at or before %v: enable_seq went from %d to %d", s.At, samples[0].EnableSeq, s.EnableSeq)}
		}
	}
	return nil
}

func schedName(ops string) string {
	if ops == "" {
		return "the kernel's own"
	}
	return ops
}

func judgeClient(l Load, c Client) []string {
	var reasons []string
	if c.Latency.Count() != int64(c.Requests-c.Lost) || c.Requests == 0 {
		reasons = append(reasons, fmt.Sprintf("%d latencies for %d requests, %d of them lost", c.Latency.Count(), c.Requests, c.Lost))
	}
	if c.Lost > 0 || c.Wrong > 0 {
		reasons = append(reasons, fmt.Sprintf("%d requests lost, %d answered wrongly", c.Lost, c.Wrong))
	}
	if lag := c.Lag.Quantile(.99); lag > lagBound {
		reasons = append(reasons, fmt.Sprintf("client was the bottleneck: it sent %v late at p99, bound %v", lag, lagBound))
	}
	if r := ratio(c.RunDelay, l.Window); r > runDelayRatio {
		reasons = append(reasons, fmt.Sprintf("client waited %.2f %% of the window for its CPU", 100*r))
	}
	if math.Abs(c.Offered/l.Rate-1) > offeredTolerance {
		reasons = append(reasons, fmt.Sprintf("client drew %.0f requests a second, scenario asks for %.0f", c.Offered, l.Rate))
	}
	return reasons
}
