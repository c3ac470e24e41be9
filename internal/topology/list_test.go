// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseList(t *testing.T) {
	cases := []struct {
		in   string
		want []int
		err  string
	}{
		{in: ""},
		{in: " \n"},
		{in: "0", want: []int{0}},
		{in: "0-3,8,10-11\n", want: []int{0, 1, 2, 3, 8, 10, 11}},
		{in: "3, 1", want: []int{1, 3}},
		{in: "2-4,3,0-2", want: []int{0, 1, 2, 3, 4}},
		{in: "8191", want: []int{8191}},
		{in: "8192", err: "CPU 8192 is above 8191"},
		{in: "0-99999999999999999999", err: "is not a CPU number"},
		{in: "3-1", err: `range "3-1" runs backwards`},
		{in: "-1", err: `"" is not a CPU number`},
		{in: "+1", err: `"+1" is not a CPU number`},
		{in: "1-", err: "is not a CPU number"},
		{in: "1,,2", err: "is not a CPU number"},
		{in: "a", err: `parse CPU list "a": "a" is not a CPU number`},
		{in: "0x1", err: "is not a CPU number"},
	}
	for _, c := range cases {
		got, err := ParseList(c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("ParseList(%q): error %v, want %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseList(%q): %v", c.in, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("ParseList(%q): %s", c.in, diff)
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, seed := range []string{"", "0", "0-3,8", "8191-8191", "0-8191,0-8191", "1,,", "-", "3-1", " 1 , 2 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := ParseList(text)
		if err != nil {
			return
		}
		if !slices.IsSorted(ids) || len(ids) > MaxCPU+1 {
			t.Fatalf("ParseList(%q) = %d ids, sorted %v", text, len(ids), slices.IsSorted(ids))
		}
		again, err := ParseList(FormatList(ids))
		if err != nil || !slices.Equal(ids, again) {
			t.Fatalf("ParseList(FormatList(%v)) = %v, %v", ids, again, err)
		}
	})
}
