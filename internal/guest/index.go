// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
)

// pkg is one version of one Debian package.
type pkg struct {
	name, version, suite, filename string
	size                           int64
	depends                        []string // "a|b" alternatives, versions dropped
	parts                          []string // those of exactly this version: the rest of a split package
}

// debName is the name under which the package's file is kept.
func (p *pkg) debName() string { return debName(p.filename) }

// debName drops what apt and the archive spell differently: apt keeps a
// version's epoch and escapes its colon, the archive leaves both out.
func debName(file string) string {
	name, rest, _ := strings.Cut(path.Base(file), "_")
	if _, noEpoch, ok := strings.Cut(rest, "%3a"); ok {
		rest = noEpoch
	}
	return name + "_" + rest
}

// versions are one package's versions in one suite.
type versions []*pkg

func (v versions) newest() *pkg {
	var best *pkg
	for _, p := range v {
		if best == nil || compareVersions(p.version, best.version) > 0 {
			best = p
		}
	}
	return best
}

// index is a suite's packages by name.
type index map[string]versions

// read adds the stanzas of a Packages file.
func (x index) read(r *bufio.Reader, suite string) error {
	p := &pkg{suite: suite}
	for {
		line, err := r.ReadString('\n')
		switch key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case line == "\n" || line == "":
			if p.name != "" {
				x[p.name] = append(x[p.name], p)
			}
			p = &pkg{suite: suite}
		case !ok:
		case key == "Package":
			p.name = value
		case key == "Version":
			p.version = value
		case key == "Filename":
			p.filename = value
		case key == "Size":
			p.size, _ = strconv.ParseInt(value, 10, 64)
		case key == "Depends" || key == "Pre-Depends":
			depends, parts := parseDepends(value)
			p.depends, p.parts = append(p.depends, depends...), append(p.parts, parts...)
		}
		if errors.Is(err, io.EOF) {
			if p.name != "" {
				x[p.name] = append(x[p.name], p)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// parseDepends drops versions and architectures: within one suite the only
// version there is is the right one. A dependency on one exact version is also
// returned as a part.
func parseDepends(s string) (depends, parts []string) {
	for clause := range strings.SplitSeq(s, ",") {
		var names []string
		for alt := range strings.SplitSeq(clause, "|") {
			name, _, _ := strings.Cut(strings.TrimSpace(alt), " ")
			name, _, _ = strings.Cut(name, ":")
			if name != "" {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			depends = append(depends, strings.Join(names, "|"))
		}
		if len(names) == 1 && strings.Contains(clause, "(= ") {
			parts = append(parts, names[0])
		}
	}
	return depends, parts
}

// compareVersions orders Debian versions: epoch, upstream, revision.
func compareVersions(a, b string) int {
	ea, ra := splitEpoch(a)
	eb, rb := splitEpoch(b)
	if c := cmp.Compare(ea, eb); c != 0 {
		return c
	}
	ua, va := splitRevision(ra)
	ub, vb := splitRevision(rb)
	if c := comparePart(ua, ub); c != 0 {
		return c
	}
	return comparePart(va, vb)
}

func splitEpoch(v string) (int, string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		n, _ := strconv.Atoi(e)
		return n, rest
	}
	return 0, v
}

func splitRevision(v string) (upstream, revision string) {
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return v[:i], v[i+1:]
	}
	return v, ""
}

// comparePart alternates between runs of non-digits, where "~" sorts before
// the end and letters before the rest, and runs of digits, compared by value.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for (a != "" && !isDigit(a[0])) || (b != "" && !isDigit(b[0])) {
			oa, ob := order(a), order(b)
			if oa != ob {
				return cmp.Compare(oa, ob)
			}
			a, b = a[1:], b[1:]
		}
		var na, nb string
		na, a = cutDigits(a)
		nb, b = cutDigits(b)
		if c := cmp.Compare(len(na), len(nb)); c != 0 {
			return c
		}
		if c := cmp.Compare(na, nb); c != 0 {
			return c
		}
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// order ranks the first byte of a run of non-digits.
func order(s string) int {
	switch {
	case s == "" || isDigit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case s[0] >= 'A' && s[0] <= 'Z' || s[0] >= 'a' && s[0] <= 'z':
		return int(s[0])
	}
	return int(s[0]) + 256
}

// cutDigits returns the leading number without leading zeros, and the rest.
func cutDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}
