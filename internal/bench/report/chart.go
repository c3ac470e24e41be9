// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench/stats"
)

// chart draws estimates as inline SVG: lines over steps, paths over a plane or
// a row per arm. Colours come from the page's style sheet, so that one drawing
// serves light and dark; every series has its own marker and dash too, for eyes
// and printers without colour.
type chart struct {
	title  string // read out by screen readers
	x, y   axis
	steps  []string // with names for x, evenly spaced, x is not an axis of numbers
	series []series
	limit  float64 // a line across, if not 0
	note   string  // what the line is
	floor  string  // what is drawn at the lower end though it is less: "0"
}

// series is one arm's estimates.
type series struct {
	name   string
	style  int
	points []point
	band   bool
}

// point is an estimate over x; over a plane, x is an estimate too.
type point struct {
	label string
	x, y  stats.Estimate
}

// The drawing's geometry, in its own units; the page scales it.
const (
	chartW, chartH = 400.0, 300.0
	plotL, plotR   = 62.0, 380.0
	plotT, plotB   = 30.0, 246.0
)

// dashes and shapes are how styles are drawn, beside their colour.
var (
	dashes = []string{"2 3", "7 4", "9 3 2 3", "", "4 2", "14 3", "9 3 2 3 2 3"}
	shapes = []string{
		`<circle r="4"/>`,
		`<rect x="-3.7" y="-3.7" width="7.4" height="7.4"/>`,
		`<path d="M-5 0H5M0-5V5"/>`,
		`<path d="M0-5 4.8 3.8H-4.8Z"/>`,
		`<path d="M0-5.2 5.2 0 0 5.2-5.2 0Z"/>`,
		`<path d="M0 5 4.8-3.8H-4.8Z"/>`,
		`<path d="M-4-4 4 4M-4 4 4-4"/>`,
	}
)

// look numbers the dash and the shape of a style. Base arms have each their own, and
// so have ours and what modifiers make of it, which are drawn beside each other; no two
// styles have the same pair.
func look(style int) (dash, shape int) {
	round := style / len(dashes)
	return (style + 5*round) % len(dashes), (style + 4*round) % len(shapes)
}

func dashOf(style int) string {
	dash, _ := look(style)
	return dashes[dash]
}

// svg renders the chart.
func (c *chart) svg() template.HTML {
	c.y.from, c.y.to = plotB, plotT
	c.x.from, c.x.to = plotL, plotR
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartW, chartH, html.EscapeString(c.title))
	c.frame(&b)
	if c.y.cut {
		// An inner drawing shows nothing beyond its edges.
		fmt.Fprintf(&b, `<svg x="%g" y="%g" width="%g" height="%g" viewBox="%[1]g %[2]g %[3]g %[4]g">`, plotL, plotT, plotR-plotL, plotB-plotT)
	}
	for _, s := range c.series {
		if s.band {
			c.drawBand(&b, s)
		}
	}
	for _, s := range c.series {
		c.draw(&b, s)
	}
	if c.y.cut {
		b.WriteString(`</svg>`)
	}
	if c.note != "" {
		write(&b, "tick note", plotL+5, c.noteAt(), "start", c.note)
	}
	b.WriteString(`</svg>`)
	// Every text in it was escaped above.
	return template.HTML(b.String()) //nolint:gosec // built here from escaped parts
}

// noteAt is where the note of the line across stands: above the line, or below it
// where a series begins above.
func (c *chart) noteAt() float64 {
	const above, below, height, width = -5, 14, 18, 60
	line := c.y.at(c.limit)
	for _, s := range c.series {
		if len(s.points) == 0 || !c.shown(s.points[0]) {
			continue
		}
		if x, y := c.place(0, s.points[0]); x < plotL+width && y <= line && y > line-height {
			return line + below
		}
	}
	return line + above
}

// frame draws axes, ticks and labels.
func (c *chart) frame(b *strings.Builder) {
	for i, tick := range c.y.ticks() {
		at, text := c.y.at(tick), c.y.format(tick)
		if i == 0 && c.floor != "" {
			text = c.floor
		}
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, plotL, plotR, at, at)
		write(b, "tick", plotL-6, at+4, "end", text)
	}
	if c.steps != nil {
		for i, label := range c.steps {
			write(b, "tick", c.stepAt(i), plotB+17, "middle", label)
		}
	} else {
		for _, tick := range c.x.ticks() {
			at := c.x.at(tick)
			fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, at, at, plotT, plotB)
			write(b, "tick", at, plotB+17, "middle", c.x.format(tick))
		}
	}
	fmt.Fprintf(b, `<line class="axis" x1="%g" x2="%g" y1="%g" y2="%g"/>`, plotL, plotR, plotB, plotB)
	write(b, "label", (plotL+plotR)/2, chartH-12, "middle", c.x.label)
	write(b, "label", 2, 15, "start", c.y.label)
	if c.limit != 0 {
		at := c.y.at(c.limit)
		fmt.Fprintf(b, `<line class="limit" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, plotL, plotR, at, at)
	}
}

func write(b *strings.Builder, class string, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, html.EscapeString(text))
}

// stepAt is where step i lies.
func (c *chart) stepAt(i int) float64 {
	return plotL + 14 + float64(i)*(plotR-plotL-28)/math.Max(1, float64(len(c.steps)-1))
}

// place is where a point lies.
func (c *chart) place(i int, p point) (x, y float64) {
	if c.steps != nil {
		return c.stepAt(i), c.y.at(p.y.Figure)
	}
	return c.x.at(p.x.Figure), c.y.at(p.y.Figure)
}

// shown says whether the chart has a place for a point.
func (c *chart) shown(p point) bool {
	return p.y.Known() && (c.steps != nil || p.x.Known())
}

// drawBand fills what lies between the ends of the intervals.
func (c *chart) drawBand(b *strings.Builder, s series) {
	var above, below []string
	flush := func() {
		if len(above) > 1 {
			for _, corner := range slices.Backward(below) {
				above = append(above, corner)
			}
			fmt.Fprintf(b, `<path class="band s%d" d="M%sZ"/>`, s.style, strings.Join(above, "L"))
		}
		above, below = nil, nil
	}
	for i, p := range s.points {
		if !c.shown(p) || !p.y.HasInterval() {
			flush()
			continue
		}
		above = append(above, fmt.Sprintf("%.1f %.1f", c.stepAt(i), c.y.at(p.y.High)))
		below = append(below, fmt.Sprintf("%.1f %.1f", c.stepAt(i), c.y.at(p.y.Low)))
	}
	flush()
}

// draw adds one series: a line broken where values are missing, and markers.
func (c *chart) draw(b *strings.Builder, s series) {
	var path strings.Builder
	pen := "M"
	for i, p := range s.points {
		if !c.shown(p) {
			pen = "M"
			continue
		}
		x, y := c.place(i, p)
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, x, y)
		pen = "L"
	}
	fmt.Fprintf(b, `<path class="line s%d" d="%s" stroke-dasharray="%s"/>`, s.style, path.String(), dashOf(s.style))
	for i, p := range s.points {
		if c.shown(p) {
			x, y := c.place(i, p)
			fmt.Fprintf(b, `<g transform="translate(%.1f %.1f)"><title>%s</title>%s</g>`, x, y, html.EscapeString(c.tip(s, p)), marker(s.style))
		}
	}
}

// tip is what a reader sees who points at a marker.
func (c *chart) tip(s series, p point) string {
	text := fmt.Sprintf("%s, %s: %s", s.name, p.label, with(p.y, c.y.format))
	if c.steps == nil {
		text += ", " + with(p.x, c.x.format)
	}
	return text
}

// marker is a style's sign around the origin.
func marker(i int) string {
	_, shape := look(i)
	kind := "mark"
	if shape == 2 || shape == 6 {
		kind = "cross" // has no inside to fill
	}
	return strings.Replace(shapes[shape], " ", fmt.Sprintf(` class="%s s%d" `, kind, i), 1)
}

// swatch is a style's sign for a legend.
func swatch(i int) template.HTML {
	//nolint:gosec // constants and a number
	return template.HTML(fmt.Sprintf(`<svg class="swatch" viewBox="-16 -7 32 14" aria-hidden="true"><path class="line s%d" d="M-15 0H15" stroke-dasharray="%s"/>%s</svg>`,
		i, dashOf(i), marker(i)))
}
