// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed" // for the page's template
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"swatch":  swatch,
	"join":    func(s []string) string { return strings.Join(s, "; ") },
	"breaks":  breaks,
	"number":  number,
	"capital": capital,
	"cell":    cellHTML,
	"prose":   prose,
	"figures": figures,
	"head":    func(text string) string { return beforeDensity.ReplaceAllString(text, nbsp+"$1") },
	"keep":    func(text string) string { return strings.ReplaceAll(text, " ", nbsp) },
}).Parse(pageHTML))

var quoted = regexp.MustCompile("`([^`]*)`")

// prose makes code of what Markdown quotes.
func prose(text string) template.HTML {
	//nolint:gosec // the text is escaped before the tags are put in
	return template.HTML(quoted.ReplaceAllString(template.HTMLEscapeString(text), "<code>$1</code>"))
}

// beforeDensity is the space in a column's head that ends in a number: "p99 at 16".
var beforeDensity = regexp.MustCompile(` ([0-9]+)$`)

// figures keeps an interval's ends on one line.
func figures(text string) string { return strings.ReplaceAll(text, "–", wordJoiner+"–"+wordJoiner) }

// breaks lets a long text that has no spaces wrap where it has commas.
func breaks(text string) template.HTML {
	//nolint:gosec // the text is escaped before the tags are put in
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(text), ",", ",<wbr>"))
}

// cellHTML puts an interval below its figure.
func cellHTML(text string) template.HTML {
	figure, ends, ok := strings.Cut(text, " (")
	escaped := template.HTMLEscapeString(figure)
	if ok {
		escaped += "<small>" + template.HTMLEscapeString(strings.TrimSuffix(ends, ")")) + "</small>"
	}
	return template.HTML(escaped) //nolint:gosec // escaped in parts
}

// page is what the template sees.
type page struct {
	*Report
	Title    string
	All      int
	Void     int
	VoidID   string // of the first list of void windows
	Again    string // whether they can be run again
	Sections []sectionView
	Styles   []int // that any arm has
}

// sectionView is a section with everything that the template shows of it.
type sectionView struct {
	*Section
	ID       string
	Headline []string
	Legend   []Row
	Points   []pointView
	Tables   []Table
	Controls []Control
	Caveats  []string
}

// pointView is an operating point with its drawings and tables.
type pointView struct {
	*Point
	Title     string
	Summary   Table
	Every     Table
	Charts    []Figure
	Ablations []Figure
	Parts     []Row // the legend of the ablations
}

// HTML writes the report as one page that needs nothing else: no network, no
// script, no font.
func (r *Report) HTML(w io.Writer) error {
	p := page{Report: r, Title: r.title(), Again: r.again()}
	p.All, p.Void = r.Windows()
	for i, s := range r.Sections {
		p.Sections = append(p.Sections, s.view(fmt.Sprintf("s%d", i+1)))
		if p.VoidID == "" && len(s.Void) > 0 {
			p.VoidID = p.Sections[i].ID + "-void"
		}
		for _, a := range s.Arms {
			if !slices.Contains(p.Styles, a.Style) {
				p.Styles = append(p.Styles, a.Style)
			}
		}
	}
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// again ends the sentence of what whoever has the records can do with them: rerun takes
// none of another clock.
func (r *Report) again() string {
	virtual := 0
	for _, s := range r.Sections {
		if s.Machine.Virtual() {
			virtual++
		}
	}
	switch virtual {
	case len(r.Sections):
		return ". They can be run again, to the last bit (`temper-lab rerun`)."
	case 0:
		return ". They cannot be run again: time was not virtual, or the guest talked to others, and a repetition is another sample."
	}
	return ". Those of virtual time, in a guest that talks to nobody, can be run again (`temper-lab rerun`)."
}

func (s *Section) view(id string) sectionView {
	v := sectionView{
		Section: s, ID: id, Headline: s.Headline(), Tables: s.Tables(),
		Controls: s.Controls(), Caveats: s.Caveats(),
	}
	if s.Main != nil {
		v.Legend = s.Main.Rivals()
	}
	for i := range s.Points {
		v.Points = append(v.Points, s.pointView(&s.Points[i]))
	}
	// What the headline speaks of comes first.
	slices.SortStableFunc(v.Points, func(a, b pointView) int {
		switch {
		case a.Point == s.Main && b.Point != s.Main:
			return -1
		case b.Point == s.Main && a.Point != s.Main:
			return 1
		}
		return 0
	})
	return v
}

func (s *Section) pointView(p *Point) pointView {
	v := pointView{Point: p, Title: s.pointTitle(p), Summary: s.Summary(p), Charts: slices.Concat(p.Charts(s), p.ProbeCharts(s))}
	if p.Climbs() {
		v.Every = s.Every(p)
	}
	if v.Ablations = p.AblationCharts(s); v.Ablations != nil {
		v.Parts = p.Ablations()
	}
	return v
}
