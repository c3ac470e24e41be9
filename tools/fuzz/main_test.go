// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

func TestParseList(t *testing.T) {
	const list = "FuzzA\nFuzzB\nok  \tmod/p\t0.003s\n?   \tmod/q\t[no test files]\nok  \tmod/r\t0.004s\nFuzzC\nok  \tmod/s\t(cached)\n"
	want := []target{{"mod/p", "FuzzA"}, {"mod/p", "FuzzB"}, {"mod/s", "FuzzC"}}
	if got := parseList([]byte(list)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTried(t *testing.T) {
	const text = "fuzz: elapsed: 0s, gathering baseline coverage: 0/31 completed\n" +
		"fuzz: elapsed: 3s, execs: 120 (40/sec), new interesting: 0 (total: 31)\n" +
		"fuzz: elapsed: 6s, execs: 250 (43/sec), new interesting: 1 (total: 32)\nPASS\n"
	if got, err := tried([]byte(text)); err != nil || got != "250" {
		t.Errorf("got %q, %v, want 250", got, err)
	}
	if got, err := tried([]byte("PASS\n")); err == nil {
		t.Errorf("nothing was tried, but %q, and no error", got)
	}
}
