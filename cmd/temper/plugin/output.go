// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/temper-sched/temper/cmd/temper/view"
)

// output is the value of -o.
type output struct {
	value string
	known []string
}

func (o *output) String() string { return o.value }

// Set is called by the flag parser.
func (o *output) Set(text string) error {
	if !slices.Contains(o.known, text) {
		return fmt.Errorf("unknown format %q: one of %s", text, strings.Join(o.known, ", "))
	}
	o.value = text
	return nil
}

// Type names the value in help texts.
func (o *output) Type() string { return "format" }

// outputFlag adds -o; the first of the known formats is the default.
func outputFlag(cmd *cobra.Command, known ...string) *output {
	o := &output{known[0], known}
	cmd.Flags().VarP(o, "output", "o", "one of "+strings.Join(known, ", "))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)))
	return o
}

// data writes v as JSON or YAML. It is false for the formats that are text.
func (p *plugin) data(o *output, v any) (bool, error) {
	if o.value != "json" && o.value != "yaml" {
		return false, nil
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return true, fmt.Errorf("write JSON: %w", err)
	}
	if o.value == "json" {
		text = append(escaped(text, surrogates), '\n')
	} else if text, err = yamlOf(escaped(text, wideEscape)); err != nil {
		return true, fmt.Errorf("write YAML: %w", err)
	}
	_, err = p.Stdout.Write(text)
	return true, err
}

// escaped is JSON or YAML in which no character moves the cursor: what their own
// escapes leave are some control and format characters, all in quoted strings.
func escaped(text []byte, wide func(rune) string) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(wide(r))
		}
	}
	return b.Bytes()
}

// surrogates is how JSON escapes what lies beyond 16 bits, wideEscape how YAML
// does.
func surrogates(r rune) string {
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}

func wideEscape(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

// yamlOf is the same document as YAML, with the same order of keys.
func yamlOf(text []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	var plain func(*yaml.Node)
	plain = func(n *yaml.Node) {
		n.Style = 0
		if n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			n.Style = yaml.DoubleQuotedStyle
		}
		for _, child := range n.Content {
			plain(child)
		}
	}
	plain(&root)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, err
	}
	err := enc.Close()
	return escaped(b.Bytes(), wideEscape), err
}

// clean lets through what prints, and line ends. Names and messages in a cluster
// may be anybody's, and a terminal obeys what it is sent.
type clean struct{ w io.Writer }

func (c clean) Write(text []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(view.Line(string(r)))
		}
	}
	if _, err := io.WriteString(c.w, b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// line is text that cannot pretend to be a line of ours.
func line(text string) string { return view.Line(text) }

// age is how long ago, to the unit that matters.
func age(since, now time.Time) string {
	d := now.Sub(since)
	switch {
	case since.IsZero():
		return "-"
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
