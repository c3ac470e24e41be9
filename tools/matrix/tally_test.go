// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const here = `{"Action":"output","Package":"p","Test":"TestA","Output":"needs a guest\n"}
{"Action":"skip","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestC","Output":"want 1\n"}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":1}
{"Action":"fail","Package":"p","Elapsed":1.5}
{"Action":"skip","Package":"no/tests","Elapsed":0}
not an event
`

const guest = `{"Action":"output","Package":"p","Test":"TestA","Output":"fine\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2}
{"Action":"pass","Package":"p","Elapsed":2.5}
`

func TestSkippedEverywhereIsNamed(t *testing.T) {
	total := newTally()
	for _, events := range []string{here, guest} {
		own := newTally()
		if err := own.read(strings.NewReader(events), io.Discard, true); err != nil {
			t.Fatal(err)
		}
		total.add(own)
	}
	if total.count() != 2 {
		t.Errorf("%d tests ran, want TestA and TestC", total.count())
	}
	if !slices.Equal(total.failed, []string{"TestC"}) {
		t.Errorf("failed: %q, want TestC", total.failed)
	}
	if got := total.ranNowhere(); !slices.Equal(got, []string{"p.TestB"}) {
		t.Errorf("ran nowhere: %q, want p.TestB", got)
	}
}

func TestOutputIsShownOfWhatFailed(t *testing.T) {
	var out strings.Builder
	if err := newTally().read(strings.NewReader(here+guest), &out, false); err != nil {
		t.Fatal(err)
	}
	want := "    want 1\nfail p 1.5s\nnot an event\npass p 2.5s\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// A machine's tests must exist, or it shows nothing and nobody notices.
func TestMachinesAreTold(t *testing.T) {
	names := map[string]bool{}
	for _, m := range machines() {
		if names[m.name] {
			t.Errorf("two machines are called %s", m.name)
		}
		names[m.name] = true
		inGuest := m.kernel != ""
		raced := !inGuest && !m.unraced
		if inGuest != slices.Contains(m.goTest("inguest"), "-exec") || raced != slices.Contains(m.goTest("inguest"), "-race") {
			t.Errorf("%s: %q", m.name, m.goTest("inguest"))
		}
		if m.lacks == slices.Contains(m.env(), "REQUIRE_ALL=1") {
			t.Errorf("%s: %q", m.name, m.env())
		}
	}
}

// A test in virtual time that no virtual machine runs is found by the whole of
// make test too, an hour later.
func TestVirtualTestsHaveAMachine(t *testing.T) {
	for _, pkg := range slices.Concat(engine, server, node) {
		for _, name := range virtualTests(t, filepath.Join("../..", pkg)) {
			if !slices.ContainsFunc(machines(), func(m machine) bool {
				return m.virtual && slices.Contains(m.packages, pkg) &&
					(m.only == "" || regexp.MustCompile(m.only).MatchString(name)) &&
					(m.without == "" || !regexp.MustCompile(m.without).MatchString(name))
			}) {
				t.Errorf("%s: no machine in virtual time runs %s", pkg, name)
			}
		}
	}
}

// virtualTests are the tests in dir that call requireVirtualTime.
func virtualTests(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if called, ok := n.(*ast.Ident); ok && called.Name == "requireVirtualTime" {
					names = append(names, f.Name.Name)
				}
				return true
			})
		}
	}
	return names
}

func TestOnlyVirtualMachinesRunTogether(t *testing.T) {
	groups := together([]machine{{name: "a"}, {name: "b"}, {name: "c", virtual: true}, {name: "d", virtual: true}, {name: "e"}})
	var sizes []int
	for _, g := range groups {
		sizes = append(sizes, len(g))
	}
	if !slices.Equal(sizes, []int{1, 1, 2, 1}) {
		t.Errorf("groups of %v, want 1 1 2 1", sizes)
	}
}
