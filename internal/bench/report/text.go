// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// Columns is the head of the lines that Line makes.
const Columns = "arm          spinners   p50 µs   p99 µs  p99.9 µs     max µs     rps  background CPUs  verdict"

// Line shows one record, aligned under Columns.
func Line(rec *bench.Record) string {
	c, l := rec.Window.Primary, rec.Window.Ledger
	mark := " "
	if c.Latency.Count() < enoughForP999 {
		mark = "*"
	}
	verdict := "valid"
	if !rec.Verdict.Valid {
		verdict = "void: " + strings.Join(rec.Verdict.Reasons, "; ")
	}
	return fmt.Sprintf("%-12s %8d %s %s %s%s %s %7.0f %16.2f  %s", rec.Arm.Name, rec.Window.Step.Density,
		column(8, c.Latency.Quantile(.5)), column(8, c.Latency.Quantile(.99)), column(9, c.Latency.Quantile(.999)), mark,
		column(9, c.Latency.Max()), c.Achieved, l.BackgroundCPUs(), verdict)
}

// column shows a duration in microseconds, right-aligned.
func column(width int, d time.Duration) string {
	us := float64(d) / 1e3
	if us < 100 {
		return fmt.Sprintf("%*.1f", width, us)
	}
	return fmt.Sprintf("%*.0f", width, us)
}

// Text writes the summary: each figure at each step, the arms side by side,
// and the headline.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for _, table := range []struct {
		title string
		cell  func(Row) string
	}{
		{"p99 latency, µs", func(row Row) string { return column(0, row.P(.99)) }},
		{"background CPUs", func(row Row) string { return fmt.Sprintf("%.2f", row.Background) }},
	} {
		r.table(&b, table.title, table.cell)
	}
	for _, sentence := range r.Headline() {
		fmt.Fprintln(&b, wrap(sentence, "", ""))
	}
	fmt.Fprintln(&b)
	for _, caveat := range r.Caveats() {
		fmt.Fprintln(&b, wrap(caveat, "- ", "  "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap breaks a sentence into lines a terminal shows whole.
func wrap(sentence, first, rest string) string {
	const width = 100
	var b strings.Builder
	line := first
	for i, word := range strings.Split(sentence, " ") {
		if i > 0 && len([]rune(line))+len([]rune(word)) >= width {
			b.WriteString(line + "\n")
			line = rest
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	return b.String() + line
}

func (r *Report) table(b *strings.Builder, title string, cell func(Row) string) {
	fmt.Fprintf(b, "%-16s", title)
	for _, d := range r.densities() {
		fmt.Fprintf(b, "%9s", fmt.Sprintf("n=%d", d))
	}
	fmt.Fprintln(b)
	for _, a := range r.Arms {
		fmt.Fprintf(b, "  %-14s", a.Name)
		for _, d := range r.densities() {
			text := "–"
			if row, ok := a.row(d); ok {
				if text = "void"; row.Valid() {
					text = cell(row)
				}
			}
			fmt.Fprintf(b, "%9s", text)
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintln(b)
}

// densities lists the steps that any arm has, ascending.
func (r *Report) densities() []int {
	seen := map[int]bool{}
	for _, a := range r.Arms {
		for _, row := range a.Rows {
			seen[row.Density] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func (a Arm) row(density int) (Row, bool) {
	for _, row := range a.Rows {
		if row.Density == density {
			return row, true
		}
	}
	return Row{}, false
}

// Caveats says what the figures cannot say.
func (r *Report) Caveats() []string {
	var out []string
	switch r.Records[0].Machine.Clock {
	case bench.ClockPerVCPU:
		out = append(out, "Time is virtual: one instruction is one nanosecond, and each vCPU has a clock of its own. The figures measure what the scheduler decides and how many instructions that takes. They contain no caches, SMT, NUMA, C-states or frequencies, and are not the latencies of any real machine.")
	case bench.ClockShared:
		out = append(out, "Time is virtual and all vCPUs share one instruction clock: with more busy vCPUs each runs slower, under any scheduler. Compare arms at equal density only, never densities with each other. No caches, SMT, NUMA, C-states or frequencies.")
	default:
		out = append(out, "Time is the host's: whatever else ran on it is in the figures.")
	}
	if note := r.Records[0].Machine.ClockNote; note != "" {
		out = append(out, "Clock: "+note+".")
	}
	if len(r.Seeds) == 1 {
		out = append(out, fmt.Sprintf("One seed (%d): a repetition gives the same samples, so there are no intervals. Differences of a few percent mean nothing.", r.Seeds[0]))
	}
	if few, most := r.requests(); few > 0 && few < enoughForP999 {
		out = append(out, fmt.Sprintf("* A step has %s requests: its p99 rests on about %d of them, its p99.9 on about %d, its maximum on one.", between(few, most), few/100, few/1000))
	}
	out = append(out, fmt.Sprintf("One operating point: %.0f requests a second to %d threads, open loop, Poisson arrivals, latency from the intended send time. Pods share all CPUs but the last, which is the client's.", r.Records[0].Window.Step.Rate, r.Scenario.Primary.Threads))
	if lag, wait := r.client(); lag > 0 {
		out = append(out, fmt.Sprintf("The client was not the bottleneck: it sent at most %s late at p99 and waited at most %.2f %% of a window for its CPU. That lag is part of every latency shown.", micros(lag), 100*wait))
	}
	if r.Void > 0 {
		out = append(out, fmt.Sprintf("%d of %d windows are void and enter no figure; they are kept in the record file with their reasons.", r.Void, len(r.Records)))
	}
	return out
}

// between shows a range, or the one number it is.
func between(few, most int64) string {
	if few == most {
		return strconv.FormatInt(few, 10)
	}
	return fmt.Sprintf("%d to %d", few, most)
}

// client is the client's worst p99 lag and its worst share of waiting.
func (r *Report) client() (lag time.Duration, wait float64) {
	for _, a := range r.Arms {
		for _, row := range a.Rows {
			lag, wait = max(lag, row.Lag.Quantile(.99)), max(wait, row.RunDelay)
		}
	}
	return lag, wait
}

// requests is the smallest and largest number of requests behind a step.
func (r *Report) requests() (few, most int64) {
	for _, a := range r.Arms {
		for _, row := range a.Rows {
			if n := row.Latency.Count(); row.Valid() {
				if few == 0 || n < few {
					few = n
				}
				most = max(most, n)
			}
		}
	}
	return few, most
}
