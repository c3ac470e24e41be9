// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/stats"
)

// Columns is the head of the lines that Line makes.
const Columns = "arm                   point   density   p50 µs   p99 µs   max µs  work/s  background CPUs  verdict"

// Line shows one record, aligned under Columns. A window has too few requests for p99.9, and
// may have for p99.
func Line(rec *bench.Record) string {
	w := &rec.Window
	p50, p99, longest := none, none, none
	if h := w.Primary.Latency; h != nil {
		p50, longest = column(h.Quantile(.5)), column(h.Max())
		if stats.Carries(.99, h.Count()) {
			p99 = column(h.Quantile(.99))
		}
	}
	work := w.Primary.Achieved
	if work == 0 {
		work = float64(w.Primary.Ops) / rec.Scenario.Load.Window.Seconds()
	}
	point := w.Step.Point
	if point == "" {
		point = none
	}
	verdict := "valid"
	if !rec.Verdict.Valid {
		verdict = "void: " + strings.Join(rec.Verdict.Reasons, "; ")
	}
	return fmt.Sprintf("%-17s %9s %9d %8s %8s %8s %7.0f %16.2f  %s",
		rec.Arm.Name, point, w.Step.Density, p50, p99, longest, work, w.Ledger.BackgroundCPUs(), verdict)
}

// column shows a duration in microseconds.
func column(d time.Duration) string {
	us := float64(d) / 1e3
	if us < 100 {
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}
