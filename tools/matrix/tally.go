// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is what go test -json prints, one a line (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
	Elapsed    float64
}

// tally counts over all machines which tests ran.
type tally struct {
	ended   int             // tests that passed, failed or were skipped
	ran     map[string]bool // package.Test: passed or failed somewhere
	skipped map[string]bool
	failed  []string                    // tests by name, their subtests left out
	output  map[string]*strings.Builder // of what has not ended yet
}

func newTally() *tally {
	return &tally{ran: map[string]bool{}, skipped: map[string]bool{}, output: map[string]*strings.Builder{}}
}

// read takes in the events of one machine. It prints each package as it ends,
// with each test's time if tests is set, and everything said by what failed.
func (t *tally) read(events io.Reader, out io.Writer, tests bool) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // not go test's own: a tool it called
			continue
		}
		t.take(e, out, tests)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read go test: %w", err)
	}
	return nil
}

func (t *tally) take(e event, out io.Writer, tests bool) {
	name := e.Package + "." + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "output":
		if t.output[name] == nil {
			t.output[name] = &strings.Builder{}
		}
		t.output[name].WriteString(e.Output)
	case "pass", "fail", "skip":
		t.end(e, name, out, tests)
	}
}

// end counts what ended and prints what is worth a line.
func (t *tally) end(e event, name string, out io.Writer, tests bool) {
	said := t.output[name]
	delete(t.output, name)
	if e.Test != "" {
		t.ended++
		t.skipped[name] = t.skipped[name] || e.Action == "skip"
		t.ran[name] = t.ran[name] || e.Action != "skip"
		if e.Action == "fail" && !strings.Contains(e.Test, "/") {
			t.failed = append(t.failed, e.Test)
		}
	}
	if e.Action == "fail" && said != nil {
		fmt.Fprint(out, indent(said.String()))
	}
	switch {
	case e.Test == "" && e.Action == "skip": // a package without tests
	case e.Test == "":
		fmt.Fprintf(out, "%-4s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
	case tests && !strings.Contains(e.Test, "/"):
		fmt.Fprintf(out, "  %-4s %s %.1fs\n", e.Action, e.Test, e.Elapsed)
	}
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}

// add takes over what another machine's tally counted.
func (t *tally) add(other *tally) {
	t.ended += other.ended
	t.failed = append(t.failed, other.failed...)
	for name, ran := range other.ran {
		t.ran[name] = t.ran[name] || ran
	}
	for name, skipped := range other.skipped {
		t.skipped[name] = t.skipped[name] || skipped
	}
}

// count is how many tests ran somewhere.
func (t *tally) count() (n int) {
	for _, ran := range t.ran {
		if ran {
			n++
		}
	}
	return n
}

// ranNowhere lists the tests that every machine skipped: they show nothing.
func (t *tally) ranNowhere() []string {
	var names []string
	for name, skipped := range t.skipped {
		if skipped && !t.ran[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
