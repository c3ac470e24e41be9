// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// chart draws lines over the ladder's steps as inline SVG. Colours come from
// the page's style sheet, so that one drawing serves light and dark; every
// series has its own marker and dash too, for eyes and printers without colour.
type chart struct {
	title  string // read out by screen readers
	xLabel string
	yLabel string
	xTicks []string // the steps, evenly spaced
	series []series
	log    bool                 // logarithmic y axis
	format func(float64) string // of a y tick
	limit  float64              // a dashed line across, if not 0
	note   string               // what the line is
}

// series is one arm: y values by step, NaN where there is none.
type series struct {
	name  string
	style int
	y     []float64
}

// The drawing's geometry, in its own units; the page scales it.
const (
	chartW, chartH = 480.0, 330.0
	plotL, plotR   = 66.0, 468.0
	plotT, plotB   = 26.0, 276.0
)

var dashes = []string{"2 3", "7 4", "", "9 3 2 3"}

// svg renders the chart.
func (c *chart) svg() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartW, chartH, html.EscapeString(c.title))
	low, high := c.bounds()
	y := c.scale(low, high)
	for _, tick := range c.ticks(low, high) {
		at := y(tick)
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, plotL, plotR, at, at)
		fmt.Fprintf(&b, `<text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`, plotL-7, at+4, html.EscapeString(c.format(tick)))
	}
	for i, label := range c.xTicks {
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`, c.x(i), plotB+18, html.EscapeString(label))
	}
	fmt.Fprintf(&b, `<line class="axis" x1="%g" x2="%g" y1="%g" y2="%g"/>`, plotL, plotR, plotB, plotB)
	fmt.Fprintf(&b, `<text class="label" x="%g" y="%g" text-anchor="middle">%s</text>`, (plotL+plotR)/2, chartH-14, html.EscapeString(c.xLabel))
	fmt.Fprintf(&b, `<text class="label" x="4" y="14">%s</text>`, html.EscapeString(c.yLabel))
	if c.limit != 0 {
		at := y(c.limit)
		fmt.Fprintf(&b, `<line class="limit" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="tick" x="%g" y="%.1f">%s</text>`,
			plotL, plotR, at, at, plotL+6, at-6, html.EscapeString(c.note))
	}
	for _, s := range c.series {
		c.draw(&b, s, y)
	}
	b.WriteString(`</svg>`)
	// Every text in it was escaped above.
	return template.HTML(b.String()) //nolint:gosec // built here from escaped parts
}

// draw adds one series: a line broken where values are missing, and markers.
func (c *chart) draw(b *strings.Builder, s series, y func(float64) float64) {
	var path strings.Builder
	pen := "M"
	for step, v := range s.y {
		if math.IsNaN(v) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, c.x(step), y(v))
		pen = "L"
	}
	fmt.Fprintf(b, `<path class="line s%d" d="%s" stroke-dasharray="%s"/>`, s.style, path.String(), dashes[s.style%len(dashes)])
	for step, v := range s.y {
		if !math.IsNaN(v) {
			fmt.Fprintf(b, `<g transform="translate(%.1f %.1f)"><title>%s, %s: %s</title>%s</g>`,
				c.x(step), y(v), html.EscapeString(s.name), html.EscapeString(c.xTicks[step]), html.EscapeString(c.format(v)), marker(s.style))
		}
	}
}

// marker is a style's sign around the origin.
func marker(i int) string {
	shape := []string{
		`<circle r="4.2"/>`,
		`<rect x="-4" y="-4" width="8" height="8"/>`,
		`<path d="M0-5.2 5 4H-5Z"/>`,
		`<path d="M0-5.5 5.5 0 0 5.5-5.5 0Z"/>`,
	}[i%4]
	return strings.Replace(shape, " ", fmt.Sprintf(` class="mark s%d" `, i), 1)
}

// swatch is a style's sign for a legend.
func swatch(i int) template.HTML {
	//nolint:gosec // constants and a number
	return template.HTML(fmt.Sprintf(`<svg class="swatch" viewBox="-16 -7 32 14" aria-hidden="true"><path class="line s%d" d="M-15 0H15" stroke-dasharray="%s"/>%s</svg>`,
		i, dashes[i%len(dashes)], marker(i)))
}

// x is where step i lies.
func (c *chart) x(i int) float64 {
	return plotL + 16 + float64(i)*(plotR-plotL-32)/math.Max(1, float64(len(c.xTicks)-1))
}

// scale maps values between low and high to the plot.
func (c *chart) scale(low, high float64) func(float64) float64 {
	at := func(v float64) float64 { return v }
	if c.log {
		at = math.Log10
	}
	return func(v float64) float64 { return plotB - (at(v)-at(low))/(at(high)-at(low))*(plotB-plotT) }
}

// bounds are the ends of the y axis: from 0, or for logarithms the nearest
// steps of 1, 2, 5 around the values.
func (c *chart) bounds() (low, high float64) {
	low, high = math.Inf(1), c.limit
	for _, s := range c.series {
		for _, v := range s.y {
			if !math.IsNaN(v) {
				low, high = math.Min(low, v), math.Max(high, v)
			}
		}
	}
	if !c.log {
		step := linearStep(high)
		return 0, math.Max(step, step*math.Ceil(high/step+0.02))
	}
	if math.IsInf(low, 1) || low <= 0 { // nothing that a logarithm can show
		return 1, 10
	}
	return stepBelow(low), stepAbove(high)
}

// linearStep is a round distance that gives three to seven ticks up to high.
func linearStep(high float64) float64 {
	if high <= 0 {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(high)))
	for _, m := range []float64{0.2, 0.5, 1} {
		if high/(m*base) <= 7 {
			return m * base
		}
	}
	return 2 * base
}

// stepBelow and stepAbove are the neighbours of v in …, 1, 2, 5, 10, 20, ….
func stepBelow(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*base <= v {
			return m * base
		}
	}
	return base
}

func stepAbove(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*base > v {
			return m * base
		}
	}
	return 10 * base
}

// ticks are the values with a grid line.
func (c *chart) ticks(low, high float64) []float64 {
	var out []float64
	if !c.log {
		step := linearStep(high)
		for v := 0.0; v <= high+step/1e6; v += step {
			out = append(out, v)
		}
		return out
	}
	for v := low; v <= high*1.000001; v = stepAbove(v * 1.000001) {
		out = append(out, v)
	}
	return out
}
