// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
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
		if inGuest != slices.Contains(m.goTest("inguest"), "-exec") || inGuest == slices.Contains(m.goTest("inguest"), "-race") {
			t.Errorf("%s: %q", m.name, m.goTest("inguest"))
		}
		if m.lacks == slices.Contains(m.env(), "REQUIRE_ALL=1") {
			t.Errorf("%s: %q", m.name, m.env())
		}
	}
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
