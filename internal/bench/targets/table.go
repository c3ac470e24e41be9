// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"
)

// Text writes the targets for a terminal, and which records they are not judged by.
func Text(w io.Writer, all []Target, leftOut []string) error {
	var b strings.Builder
	met, missed := 0, 0
	for _, t := range all {
		fmt.Fprintf(&b, "%-4s %-6s %s\n", t.ID, t.verdict(), t.Target)
		switch t.verdict() {
		case "met":
			met++
		case "missed":
			missed++
		}
		for _, p := range t.Parts {
			fmt.Fprintf(&b, "            %s: %s", p.What, p.said())
			if p.Where != "" {
				fmt.Fprintf(&b, " at %s [%s]", p.Where, path.Base(p.Record))
			}
			fmt.Fprintln(&b)
		}
		if t.Note != "" {
			fmt.Fprintf(&b, "            %s\n", t.Note)
		}
	}
	fmt.Fprintf(&b, "\n%d targets: %d met, %d missed, %d without records that say\n", len(all), met, missed, len(all)-met-missed)
	if len(leftOut) > 0 {
		fmt.Fprintf(&b, "not judged by:\n")
	}
	for _, record := range leftOut {
		fmt.Fprintf(&b, "  %s\n", record)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict is the target's state in a word.
func (t Target) verdict() string {
	switch {
	case t.Met == nil:
		return "open"
	case *t.Met:
		return "met"
	}
	return "missed"
}

// said is a part's figure beside its bound.
func (p Part) said() string {
	switch {
	case p.Figure == nil && p.Void != "":
		return fmt.Sprintf("%s (%s)", p.Void, p.Bound)
	case p.Figure == nil:
		return "no record yet (" + p.Bound + ")"
	case p.Met == nil:
		return fmt.Sprintf("%s (%s; %s)", p.Text, p.Bound, p.Note)
	}
	return fmt.Sprintf("%s (%s)", p.Text, p.Bound)
}

// The marks around the table in a Markdown file.
const (
	Begin = "<!-- targets: written by `temper-lab targets --readme README.md`; do not edit -->"
	End   = "<!-- targets end -->"
)

// Markdown is the table as README has it. Figures are of the worst step; those
// that no record has are a dash.
func Markdown(all []Target) string {
	var b strings.Builder
	b.WriteString("| | target | measured, at the worst step | met |\n|---|---|---|---|\n")
	for _, t := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.ID, t.Target, t.measured(), t.mark())
	}
	return b.String()
}

func (t Target) mark() string {
	switch t.verdict() {
	case "met":
		if t.Note != "" {
			return "yes, as far as a record can say"
		}
		return "yes"
	case "missed":
		return "**no**"
	}
	return "–"
}

// measured lists the parts, each with a link to its record.
func (t Target) measured() string {
	var parts []string
	for _, p := range t.Parts {
		if p.Figure == nil {
			if p.Void != "" {
				parts = append(parts, p.What+": "+p.Void)
			}
			continue
		}
		text := fmt.Sprintf("%s: [%s](%s)", p.What, p.Text, p.Record)
		switch {
		case p.Met == nil:
			text += " (" + p.Note + ")"
		case !*p.Met:
			text += ", **missed** at " + p.Where
			if p.Note != "" {
				text += " (" + p.Note + ")"
			}
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "no record yet"
	}
	if lacks := missing(t.Parts); t.Met == nil && lacks != "" {
		parts = append(parts, lacks)
	}
	return strings.Join(parts, "; ")
}

// Splice puts the table between the marks in a Markdown file.
func Splice(text []byte, all []Target) ([]byte, error) {
	head, rest, ok := bytes.Cut(text, []byte(Begin+"\n"))
	if !ok {
		return nil, fmt.Errorf("find %q: no such line", Begin)
	}
	_, tail, ok := bytes.Cut(rest, []byte(End+"\n"))
	if !ok {
		return nil, fmt.Errorf("find %q: no such line", End)
	}
	return bytes.Join([][]byte{head, []byte(Begin + "\n"), []byte(Markdown(all)), []byte(End + "\n"), tail}, nil), nil
}
