// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	maxFileLines    = 600
	maxBPFFuncLines = 100
	maxRecipeLines  = 5
)

func fileLength(tr tree) []string {
	var out []string
	for _, name := range tr.paths(isCode) {
		if n := strings.Count(tr[name], "\n"); n > maxFileLines && !isGenerated(tr[name]) {
			out = append(out, fmt.Sprintf("%s: %d lines, more than %d: split it by noun", name, n, maxFileLines))
		}
	}
	return out
}

var spdxLine = regexp.MustCompile(`SPDX-License-Identifier: (\S+)`)

// licenceOf says under which licence a source file is. The kernel lets only
// GPL-2.0 call its functions; the plugin runs inside QEMU and follows it.
func licenceOf(name string) string {
	switch {
	case inBPF(name):
		return "GPL-2.0"
	case isC(name) && strings.HasPrefix(name, "clock/plugin/"):
		return "GPL-2.0-or-later"
	}
	return "Apache-2.0"
}

func licences(tr tree) []string {
	var out []string
	for _, name := range tr.paths(isCode) {
		if isGenerated(tr[name]) {
			continue
		}
		head := strings.Join(firstLines(tr[name], 3), "\n")
		if m := spdxLine.FindStringSubmatch(head); m == nil || m[1] != licenceOf(name) {
			out = append(out, fmt.Sprintf("%s: the first lines need SPDX-License-Identifier: %s", name, licenceOf(name)))
		}
	}
	return out
}

func firstLines(text string, n int) []string {
	lines := strings.SplitN(text, "\n", n+1)
	return lines[:min(n, len(lines))]
}

// leftover is spelled apart so that this file passes its own rule.
var leftover = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b|not ` + `implemented`)

func leftovers(tr tree) []string {
	return matches(tr, leftover, func(name string) bool {
		return isCode(name) || isDoc(name) || name == "Makefile" || path.Dir(name) == ".ci"
	}, "is a leftover: do it, or write an issue")
}

// machinePath knows the start of a path. /root/ops is a file of sched_ext's and
// /home/temper is in guests.
var machinePath = regexp.MustCompile(`(^|[\s"'` + "`" + `=(:])/(work/\w|home/([^t]|t[^e])|root/(\.|[a-np-z]))`)

func machinePaths(tr tree) []string {
	text := func(name string) bool {
		return path.Ext(name) != ".sum" && !strings.Contains(name, "LICENSE")
	}
	return matches(tr, machinePath, text, "is a path of one machine")
}

// matches returns a violation per line that pattern finds in the files kept.
func matches(tr tree, pattern *regexp.Regexp, keep func(string) bool, why string) []string {
	var out []string
	for _, name := range tr.paths(keep) {
		for i, line := range strings.Split(tr[name], "\n") {
			if found := pattern.FindString(line); found != "" {
				out = append(out, fmt.Sprintf("%s:%d: %q %s", name, i+1, strings.TrimSpace(found), why))
			}
		}
	}
	return out
}

func inBPF(name string) bool { return isC(name) && strings.HasPrefix(name, "bpf/") }

var (
	verifierStart = regexp.MustCompile(`(?i)/[*/]\s*verifier\b`)
	verifierNote  = regexp.MustCompile(`/\* verifier( \((all|[<>]=? \d+\.\d+)\))?: [a-z]`)
	verifierVague = regexp.MustCompile(`(?i)\b(please|appease|satisfy|help|calm|make)s?\b.*\bverifier\b|\bverifier\b.*\b(happy|complain)`)
)

// verifierNotes keeps the notes greppable: which kernels, what fails, the way
// out. A sentence that merely mentions the verifier is no note.
func verifierNotes(tr tree) []string {
	var out []string
	for _, name := range tr.paths(inBPF) {
		for i, line := range strings.Split(tr[name], "\n") {
			unformed := verifierStart.MatchString(line) && !verifierNote.MatchString(line)
			if unformed || verifierVague.MatchString(line) {
				out = append(out, fmt.Sprintf(`%s:%d: write "/* verifier (< 6.19): what fails, the way out. */"`, name, i+1))
			}
		}
	}
	return out
}

// bpfFunctions relies on the C format: a function's braces stand in column 0.
func bpfFunctions(tr tree) []string {
	var out []string
	for _, name := range tr.paths(inBPF) {
		start := 0
		for i, line := range strings.Split(tr[name], "\n") {
			switch {
			case line == "{":
				start = i
			case line == "}" && start > 0:
				if n := i - start - 1; n > maxBPFFuncLines {
					out = append(out, fmt.Sprintf("%s:%d: a function of %d lines, more than %d", name, start, n, maxBPFFuncLines))
				}
				start = 0
			}
		}
	}
	return out
}

func recipes(tr tree) []string {
	var out []string
	target, n := "", 0
	for line := range strings.Lines(tr["Makefile"] + "\n") {
		if strings.HasPrefix(line, "\t") {
			n++
			continue
		}
		if n > maxRecipeLines {
			out = append(out, fmt.Sprintf("Makefile: recipe of %s has %d lines, more than %d: write it in Go", target, n, maxRecipeLines))
		}
		target, _, _ = strings.Cut(line, ":")
		n = 0
	}
	return out
}

var (
	statusLine = regexp.MustCompile(`(?m)^Status: (proposed|accepted|superseded by \[)`)
	designHead = []string{"Problem", "Success criteria", "Decision", "Rejected, and why", "What would change our mind"}
)

func designDocs(tr tree) []string {
	var out []string
	for _, name := range tr.paths(func(p string) bool { return isDoc(p) && path.Dir(p) == "docs/design" }) {
		if !statusLine.MatchString(tr[name]) {
			out = append(out, name+`: needs a line "Status: proposed", "accepted" or "superseded by [NNNN](…)"`)
		}
		for _, head := range designHead {
			if !strings.Contains(tr[name], "\n## "+head+"\n") {
				out = append(out, fmt.Sprintf("%s: needs the section %q", name, head))
			}
		}
	}
	return out
}

var (
	figure     = regexp.MustCompile(`(\d+(?:[.,]\d+)*)\s?(?:µs|us|ms|%|×)`)
	paragraph  = regexp.MustCompile(`\n\n|\n- `)
	interval   = regexp.MustCompile(`(\d[\d.,]*)( ?[µmnu]?s| ?%|×)?(?: CPUs)? \((\d[^()]*–[^()]*)\)`)
	recordLink = regexp.MustCompile(`bench/records/[\w.-]+`)
)

// generated is the table of targets. It is computed from the records, and a
// test of its own checks that it is current.
var generated = regexp.MustCompile(`(?s)<!-- targets: .*?<!-- targets end -->`)

// measured are the documents whose figures are of records.
var measured = []string{"README.md", "docs/results.md"}

// measuredFigures: a number that a reader could quote stands beside the record
// that has it, and the record does have it, with its interval where it has one. It is the first that its paragraph
// or list item names, in a table the one that its row names or the next row above it.
func measuredFigures(tr tree) []string {
	var out []string
	for _, name := range measured {
		for _, block := range paragraph.Split(generated.ReplaceAllString(tr[name], ""), -1) {
			record := recordLink.FindString(block)
			if !strings.Contains(block, "\n|") { // prose, in which a line may end between a figure and its interval
				block = strings.Join(strings.Fields(block), " ")
			}
			for line := range strings.SplitSeq(block, "\n") {
				if named := recordLink.FindString(line); named != "" && strings.HasPrefix(line, "|") {
					record = named
				}
				for _, m := range figure.FindAllStringSubmatch(line, -1) {
					switch {
					case record == "":
						out = append(out, fmt.Sprintf("%s: %q names no record", name, m[0]))
					case !tr.holds(record, m[1]):
						out = append(out, fmt.Sprintf("%s: %q is not in %s", name, m[0], record))
					}
				}
				for _, m := range interval.FindAllStringSubmatch(line, -1) {
					if record != "" && !tr.reports(record, m[1]+m[2]+" ("+m[3]+")") {
						out = append(out, fmt.Sprintf("%s: %q is not in %s's report", name, m[0], record))
					}
				}
			}
		}
	}
	return out
}

// reports tells whether dir's report has the figure with that interval.
func (tr tree) reports(dir, figure string) bool {
	text := strings.Join(strings.Fields(tr[dir+"/REPORT.md"]), " ")
	return regexp.MustCompile(`(^|[^\d.,])` + regexp.QuoteMeta(figure)).MatchString(text)
}

// holds tells whether a file below dir contains the number.
func (tr tree) holds(dir, number string) bool {
	whole := regexp.MustCompile(`(^|[^\d.,])` + regexp.QuoteMeta(number) + `($|[^\d.,]|[.,]($|\D))`)
	files := tr.paths(func(p string) bool { return strings.HasPrefix(p, dir+"/") })
	return slices.ContainsFunc(files, func(p string) bool { return whole.MatchString(tr[p]) })
}

var relativeLink = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)

func links(tr tree) []string {
	var out []string
	for _, name := range tr.paths(isDoc) {
		for _, m := range relativeLink.FindAllStringSubmatch(tr[name], -1) {
			if target := path.Join(path.Dir(name), m[1]); !tr.exists(target) {
				out = append(out, fmt.Sprintf("%s: links to %s, which is not there", name, m[1]))
			}
		}
	}
	return out
}

var (
	namedPath = regexp.MustCompile("`((?:bpf|clock|cmd|docs|internal|test|tools)/[\\w./-]*)`")
	namedTest = regexp.MustCompile("`(Test[A-Z]\\w*)`")
)

// names: a file or a test that a document names is there.
func names(tr tree) []string {
	var out []string
	tests := tr.paths(isTest)
	for _, name := range tr.paths(isDoc) {
		for _, m := range namedPath.FindAllStringSubmatch(tr[name], -1) {
			if !tr.exists(strings.TrimSuffix(m[1], "/")) {
				out = append(out, fmt.Sprintf("%s: names %s, which is not there", name, m[1]))
			}
		}
		for _, m := range namedTest.FindAllStringSubmatch(tr[name], -1) {
			if !slices.ContainsFunc(tests, func(p string) bool { return strings.Contains(tr[p], "\nfunc "+m[1]+"(") }) {
				out = append(out, fmt.Sprintf("%s: names the test %s, which is not there", name, m[1]))
			}
		}
	}
	return out
}

var reasonConst = regexp.MustCompile(`(?m)^\s+(\w+)\s+Reason = "(\w+)"`)

// reasons: whoever meets a reason finds its cause and way out.
func reasons(tr tree) []string {
	var out []string
	for _, m := range reasonConst.FindAllStringSubmatch(tr["internal/sched/api.go"], -1) {
		if !strings.Contains(tr["docs/operate.md"], "`"+m[2]+"`") {
			out = append(out, "docs/operate.md: does not explain the reason "+m[2])
		}
	}
	return out
}

var exitMeaning = regexp.MustCompile(`(?m)^\s+exit\w+:\s+"(.+)",$`)

// exitCodes: the guide has the command's own words.
func exitCodes(tr tree) []string {
	var out []string
	for code, m := range exitMeaning.FindAllStringSubmatch(tr["cmd/temper/exit.go"], -1) {
		if row := fmt.Sprintf("| %d | %s |", code, m[1]); !strings.Contains(tr["docs/operate.md"], row) {
			out = append(out, "docs/operate.md: lacks the row "+row)
		}
	}
	return out
}
