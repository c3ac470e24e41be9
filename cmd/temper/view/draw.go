// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

// bucketMarks are the ledger's buckets in the bars of text output.
var bucketMarks = [sched.BucketCount]byte{
	sched.BucketOwn:        'C',
	sched.BucketCritical:   'c',
	sched.BucketSystem:     's',
	sched.BucketStandard:   'n',
	sched.BucketLent:       'L',
	sched.BucketBackground: 'b',
	sched.BucketOther:      'o',
	sched.BucketIRQ:        'i',
	sched.BucketIdle:       '.',
}

const legend = "C critical on its fence, c critical elsewhere, s system, n standard, b background,\n" +
	"L lent by the fence to lower tiers, o other classes, i interrupts, . idle"

// barOrder is how a bar is filled: what matters most comes first.
var barOrder = [sched.BucketCount]sched.Bucket{
	sched.BucketOwn, sched.BucketCritical, sched.BucketSystem, sched.BucketStandard, sched.BucketLent,
	sched.BucketBackground, sched.BucketOther, sched.BucketIRQ, sched.BucketIdle,
}

const (
	barWidth    = 32
	columnWidth = 60 // a bar, its CPU and some of its cgroup's name
)

// lines returns the view as lines no wider than width.
func (v View) lines(width int) []string {
	lines := []string{fmt.Sprintf("temper  plan %d, lend %s, %.2f CPUs lent, worst wait %s of %s",
		v.Generation, v.Lend, v.Lent, Short(v.WorstWait), Short(v.WaitBound)), ""}
	lines = append(lines, v.tierLines()...)
	lines = append(lines, "")
	lines = append(lines, v.cpuLines(width)...)
	lines = append(lines, strings.Split(legend, "\n")...)
	if len(v.Groups) > 0 {
		lines = append(lines, "")
		lines = append(lines, v.groupLines()...)
	}
	if limits := v.limitLines(); len(limits) > 0 {
		lines = append(append(lines, ""), limits...)
	}
	for i, line := range lines {
		if text := []rune(line); len(text) > width {
			line = string(text[:width])
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

func (v View) tierLines() []string {
	return Table("TIER\tCPUS\tWAKEUPS/S\tDELAY P50\tP99\tWORST WAIT\tPREEMPTIONS/S\tPREEMPTED/S\tRESCUES/S", func(row func(...any)) {
		for _, t := range v.Tiers {
			row(t.Tier, fmt.Sprintf("%.2f", t.CPUs), rate(t.WakeupsPerSecond), t.delay(t.P50), t.delay(t.P99), Short(t.WorstWait),
				rate(t.PreemptionsPerSecond), rate(t.PreemptedPerSecond), rate(t.RescuesPerSecond))
		}
	})
}

func (v View) groupLines() []string {
	return Table("TIER\tCPUS\tWAKEUPS/S\tDELAY P50\tP99\tWORST WAIT\tCGROUP", func(row func(...any)) {
		for _, g := range v.Groups {
			name := g.Cgroup
			if name == "" {
				name = fmt.Sprintf("(gone, id %d)", g.ID)
			}
			row(g.Tier, fmt.Sprintf("%.2f", g.CPUs), rate(g.WakeupsPerSecond), g.delay(g.P50), g.delay(g.P99), Short(g.WorstWait), name)
		}
	})
}

// cpuLines puts CPUs side by side where there is room, filled by column.
func (v View) cpuLines(width int) []string {
	columns := max(width/columnWidth, 1)
	rows := (len(v.CPUs) + columns - 1) / columns
	lines := make([]string, rows)
	for i, c := range v.CPUs {
		cell := fmt.Sprintf("%4d [%s] %s", c.CPU, c.bar(), Line(c.Fence))
		if i/rows < columns-1 {
			cell = fmt.Sprintf("%-*.*s", width/columns, width/columns-1, cell)
		}
		lines[i%rows] += cell
	}
	return lines
}

// bar cuts the CPU's time into equal parts and marks each with the bucket that
// had its middle.
func (c cpuView) bar() string {
	bar := make([]byte, 0, barWidth)
	var end float64
	for _, b := range barOrder {
		end += c.Share[bucketNames[b]]
		for len(bar) < barWidth && float64(len(bar))+0.5 < end*barWidth {
			bar = append(bar, bucketMarks[b])
		}
	}
	for len(bar) < barWidth {
		bar = append(bar, ' ') // time that no bucket had: the CPU was offline
	}
	return string(bar)
}

// delay is a percentile as text; of no wakeups there is none.
func (d delays) delay(percentile time.Duration) string {
	if d.WakeupsPerSecond == 0 {
		return "-"
	}
	return Short(percentile)
}

func rate(perSecond float64) string {
	if perSecond >= 10 || perSecond == 0 {
		return fmt.Sprintf("%.0f", perSecond)
	}
	return fmt.Sprintf("%.1f", perSecond)
}
