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
