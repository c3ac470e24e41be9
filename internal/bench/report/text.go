// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for i, s := range r.Sections {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "%s · %s · %s\n\n", s.Scenario.Name, s.Machine.Topology, number(s.Windows, "window"))
		for _, sentence := range s.Headline() {
			fmt.Fprintln(&b, wrap(sentence, "", ""))
		}
		for i := range s.Points {
			if t := s.Summary(&s.Points[i]); len(t.Rows) > 0 {
				fmt.Fprintln(&b)
				t.text(&b, s.pointTitle(&s.Points[i]))
			}
		}
		for _, t := range s.Tables() {
			fmt.Fprintln(&b)
			t.text(&b, t.Title)
		}
		fmt.Fprintln(&b)
		for _, c := range s.Controls() {
			fmt.Fprintln(&b, wrap(fmt.Sprintf("%s: %s. %s", c.Name, c.Did, capital(string(c.State))), "= ", "  "))
		}
		for _, caveat := range s.Caveats() {
			fmt.Fprintln(&b, wrap(caveat, "- ", "  "))
		}
		for _, v := range s.Void {
			fmt.Fprintln(&b, wrap(v.ID+": "+strings.Join(v.Reasons, "; "), "void ", "     "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// pointTitle names an operating point with its rate.
func (s *Section) pointTitle(p *Point) string {
	switch {
	case p.Name == "" && p.Rate == 0:
		return ""
	case p.Rate == 0:
		return p.Name
	case p.Share > 0:
		return fmt.Sprintf("%s: %s a second, %.0f%s%% of the most it can", p.Name, rate(p.Rate), 100*p.Share, nbsp)
	}
	return fmt.Sprintf("%s: %s a second", p.Name, rate(p.Rate))
}

// text writes the table with aligned columns: names to the left, figures to the right.
func (t Table) text(b *strings.Builder, title string) {
	if title != "" {
		fmt.Fprintln(b, title)
	}
	width := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString("  " + cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(b, strings.TrimRight(line.String(), " "))
	}
}

// wrap breaks a sentence into lines a terminal shows whole.
func wrap(sentence, first, rest string) string {
	const width = 100
	var b strings.Builder
	line := first
	for i, word := range strings.Split(sentence, " ") {
		if i > 0 && utf8.RuneCountInString(line)+utf8.RuneCountInString(word) >= width {
			b.WriteString(line + "\n")
			line = rest
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	return b.String() + line
}

// Markdown writes REPORT.md: short, and every figure that prose may quote.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nGenerated from records.jsonl by `temper-lab report`; do not edit. How to read it: docs/laboratory.md.\n", r.title())
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n## %s, %s\n\n", s.Scenario.Title, s.Machine.Topology)
		for i, sentence := range s.Headline() {
			if i == 0 {
				sentence = "**" + sentence + "**"
			}
			fmt.Fprintf(&b, "%s\n\n", fill(sentence))
		}
		for i := range s.Points {
			s.Summary(&s.Points[i]).markdown(&b, s.pointTitle(&s.Points[i]))
		}
		for _, t := range s.Tables() {
			t.markdown(&b, t.Title)
		}
		s.ControlTable().markdown(&b, "Controls")
		fmt.Fprintf(&b, "### Caveats\n\n")
		for _, caveat := range s.Caveats() {
			fmt.Fprintf(&b, "%s\n", wrap(plainSpaces(caveat), "- ", "  "))
		}
		if len(s.Void) > 0 {
			fmt.Fprintf(&b, "\n### Void windows\n\n")
			for _, v := range s.Void {
				fmt.Fprintf(&b, "%s\n", wrap(plainSpaces("`"+v.ID+"`: "+strings.Join(v.Reasons, "; ")), "- ", "  "))
			}
		}
		fmt.Fprintf(&b, "\n### Provenance\n\n")
		for _, f := range s.Facts.List() {
			fmt.Fprintf(&b, "- %s: %s\n", f.Name, plainSpaces(strings.Join(f.Values, " · ")))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// title names the directory's records.
func (r *Report) title() string {
	if len(r.Sections) == 1 {
		return fmt.Sprintf("%s: %s", r.Source, r.Sections[0].Scenario.Title)
	}
	return fmt.Sprintf("%s: %s", r.Source, number(len(r.Sections), "scenario"))
}

func plainSpaces(text string) string { return strings.ReplaceAll(text, nbsp, " ") }

func fill(sentence string) string { return wrap(plainSpaces(sentence), "", "") }

func (t Table) markdown(b *strings.Builder, title string) {
	if len(t.Rows) == 0 {
		return
	}
	if title != "" {
		fmt.Fprintf(b, "### %s\n\n", plainSpaces(title))
	}
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |\n", plainSpaces(strings.Join(row, " | ")))
	}
	fmt.Fprintln(b)
}
