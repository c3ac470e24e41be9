// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/temper-sched/temper/internal/bench/stats"
)

// nbsp keeps a figure and its unit on one line.
const nbsp = "\u00a0"

// wordJoiner forbids a line to break where it stands.
const wordJoiner = "\u2060"

// none is shown where there is no figure.
const none = "–"

// micros shows a duration in nanoseconds to three digits, with its unit.
func micros(ns float64) string {
	switch us := ns / 1e3; {
	case math.IsNaN(ns):
		return none
	case us < 10:
		return fmt.Sprintf("%.2f%sµs", us, nbsp)
	case us < 100:
		return fmt.Sprintf("%.1f%sµs", us, nbsp)
	case us < 1e3:
		return fmt.Sprintf("%.0f%sµs", us, nbsp)
	case us < 1e4:
		return fmt.Sprintf("%.2f%sms", us/1e3, nbsp)
	case us < 1e5:
		return fmt.Sprintf("%.1f%sms", us/1e3, nbsp)
	case us < 1e6:
		return fmt.Sprintf("%.0f%sms", us/1e3, nbsp)
	default:
		return fmt.Sprintf("%.2f%ss", us/1e6, nbsp)
	}
}

// with shows an estimate with its interval in brackets, the unit once where it
// is the same: "62.2 µs (61.7–62.4)".
func with(e stats.Estimate, format func(float64) string) string {
	if !e.Known() {
		return none
	}
	figure := format(e.Figure)
	if !e.HasInterval() {
		return figure
	}
	low, high := format(e.Low), format(e.High)
	if unit := unitOf(figure); unit == unitOf(low) && unit == unitOf(high) {
		low, high = strings.TrimSuffix(low, unit), strings.TrimSuffix(high, unit)
	}
	if strings.ContainsAny(low+high, "+−") {
		return fmt.Sprintf("%s (%s to %s)", figure, low, high)
	}
	return fmt.Sprintf("%s (%s–%s)", figure, low, high)
}

// unitOf is what follows the digits.
func unitOf(figure string) string {
	return strings.TrimLeft(figure, "+−0123456789.,")
}

// fold shows a ratio to three digits.
func fold(ratio float64) string {
	switch {
	case math.IsNaN(ratio) || math.IsInf(ratio, 0):
		return none
	case ratio < 10:
		return fmt.Sprintf("%.2f×", ratio)
	case ratio < 100:
		return fmt.Sprintf("%.1f×", ratio)
	}
	return fmt.Sprintf("%.0f×", ratio)
}

func cpus(v float64) string { return fmt.Sprintf("%.2f", v) }

func percent(v float64) string { return fmt.Sprintf("%.1f%s%%", 100*v, nbsp) }

// tiny shows a share that may be very small.
func tiny(v float64) string {
	if v == 0 {
		return "0"
	}
	if v >= 1e-3 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'e', 1, 64)
}

// change puts a ratio in words: what is shown, and no more than that. That few seeds show
// nothing is the sentence's to say.
func change(e stats.Estimate, above, below string) string {
	if !e.Known() {
		return "not measured"
	}
	direction := above
	if e.Figure < 1 {
		direction = below
	}
	off := func(ratio float64) float64 { return ratio - 1 }
	percents := stats.Estimate{Figure: off(e.Figure), Low: off(e.Low), High: off(e.High), Seeds: e.Seeds}
	switch {
	case math.Abs(e.Figure-1) < resolution && e.High-e.Low < resolution:
		return "equal"
	case e.HasInterval() && !e.Excludes(1):
		return fmt.Sprintf("not shown to differ (%s)", strings.TrimSuffix(afterBracket(with(percents, signedPercent)), ")")+nbsp+"%")
	case e.Figure >= 2:
		return with(e, fold) + " as " + comparative(above)
	}
	text := percent(math.Abs(percents.Figure)) + " " + direction
	if e.HasInterval() {
		text += fmt.Sprintf(" (%s%s%%)", strings.TrimSuffix(afterBracket(with(percents, signedPercent)), ")"), nbsp)
	}
	return text
}

// resolution is below what histograms of three digits can tell.
const resolution = 0.0005

func afterBracket(text string) string {
	_, after, _ := strings.Cut(text, "(")
	return after
}

// comparative turns "higher" into what follows "3 times as".
func comparative(above string) string {
	if above == "more" {
		return "much"
	}
	return strings.TrimSuffix(above, "er")
}

func signedPercent(v float64) string {
	if v < 0 {
		return "−" + percent(-v)
	}
	return "+" + percent(v)
}

// list joins parts as a sentence does.
func list(parts []string) string {
	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// rate groups a large whole number in threes.
func rate(v float64) string {
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// number is n with its noun.
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
