// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func limit(cgroup string, id, quota uint64) Limit {
	return Limit{Cgroup: cgroup, ID: id, QuotaUs: quota, PeriodUs: 100_000}
}

// nested are n limits above one another.
func nested(n int) []Limit {
	var limits []Limit
	for i := range n {
		limits = append(limits, limit(strings.Repeat("/a", i+1), uint64(i+1), 1000))
	}
	return limits
}

func TestCheckLimits(t *testing.T) {
	told := LimitSupport{Told: true, Most: 5, Depth: 4}
	untold := LimitSupport{Most: 5, Depth: 4}
	var flat []Limit
	for i := range 6 {
		flat = append(flat, limit(fmt.Sprintf("/pod%d", i), uint64(i), 1000))
	}
	for name, c := range map[string]struct {
		limits     []Limit
		can        LimitSupport
		cause, fix string // empty: all can be held
	}{
		"no limits":            {nil, untold, "", ""},
		"as many as fit":       {flat[:5], told, "", ""},
		"as deep as may be":    {nested(4), told, "", ""},
		"nobody tells":         {flat[:1], untold, "this kernel tells no scheduler of CPU limits, and there are /pod0", "boot a kernel 6.17 or newer"},
		"nobody tells of many": {flat[:5], untold, "there are /pod0, /pod1, /pod2 and 2 more", "once a second"},
		"too many":             {flat, told, "6 cgroups have a CPU limit, 5 can be held", "lift limits"},
		"too deep":             {nested(5), told, "more than 4 CPU limits above one another hold for no thread: /a/a/a/a/a", "the outermost do not hold"},
		"siblings are not above": {
			append(nested(4), limit("/a/b", 9, 1000)), told,
			"", "",
		},
		"a prefix is no parent": {append(nested(3), limit("/a/a/ab", 8, 1000), limit("/a/a/ab/c", 9, 1000)), told, "", ""},
		"a gap does not count":  {[]Limit{limit("/a/b/c/d/e/f", 1, 1000), limit("/a", 2, 1000)}, told, "", ""},
		"not a path":            {[]Limit{limit("pod", 1, 1000)}, told, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := CheckLimits(c.limits, c.can)
			switch {
			case c.cause == "" && p != nil:
				t.Errorf("refused: %s", p.Cause)
			case c.cause != "" && p == nil:
				t.Error("accepted")
			case p != nil && (!strings.Contains(p.Cause, c.cause) || !strings.Contains(p.Fix, c.fix)):
				t.Errorf("cause %q, fix %q; want %q, %q", p.Cause, p.Fix, c.cause, c.fix)
			}
		})
	}
}

func TestLimitChanges(t *testing.T) {
	known := map[uint64]Limit{1: limit("/a", 1, 1000), 2: limit("/a/b", 2, 2000), 3: limit("/c", 3, 3000)}
	for name, c := range map[string]struct{ now, want []Limit }{
		"nothing new": {[]Limit{known[3], known[1], known[2]}, nil},
		"a new one":   {[]Limit{known[1], known[2], known[3], limit("/d", 4, 4000)}, []Limit{limit("/d", 4, 4000)}},
		"a change":    {[]Limit{known[1], limit("/a/b", 2, 9000), known[3]}, []Limit{limit("/a/b", 2, 9000)}},
		"lifted":      {[]Limit{known[1], known[3]}, []Limit{limit("/a/b", 2, 0)}},
		"made anew": {
			[]Limit{known[1], known[2], limit("/c", 7, 3000)},
			[]Limit{limit("/c", 3, 0), limit("/c", 7, 3000)},
		},
		"the parent first": {
			[]Limit{limit("/a/b", 2, 5000), limit("/a", 1, 5000), known[3]},
			[]Limit{limit("/a", 1, 5000), limit("/a/b", 2, 5000)},
		},
	} {
		if diff := cmp.Diff(c.want, LimitChanges(known, c.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	burst := known[1]
	burst.BurstUs = 500
	if got := LimitChanges(known, []Limit{burst, known[2], known[3]}); len(got) != 1 || got[0] != burst {
		t.Errorf("another burst: %v", got)
	}
}

// Whoever does what LimitChanges says knows what there is.
func FuzzLimitChanges(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{2, 3, 4})
	f.Fuzz(func(t *testing.T, before, after []byte) {
		then, now := limitsOf(before), limitsOf(after)
		known := map[uint64]Limit{}
		for _, step := range [][]Limit{then, now} {
			for _, l := range LimitChanges(known, step) {
				if known[l.ID] = l; l.QuotaUs == 0 {
					delete(known, l.ID)
				}
			}
			if len(LimitChanges(known, step)) > 0 {
				t.Fatalf("from %v to %v something is left to do", then, now)
			}
		}
	})
}

// limitsOf makes one limit for each distinct id in the bytes' lower half.
func limitsOf(data []byte) []Limit {
	seen := map[uint64]bool{}
	var limits []Limit
	for _, b := range data {
		if id := uint64(b & 15); !seen[id] {
			seen[id] = true
			limits = append(limits, limit(fmt.Sprintf("/%d", id), id, 1000+uint64(b>>4)))
		}
	}
	return limits
}

func TestCPUMax(t *testing.T) {
	for _, c := range []CPUMax{CPUMaxEnforce, CPUMaxRefuse} {
		if got, err := ParseCPUMax(c.String()); got != c || err != nil {
			t.Errorf("%s reads as %v, %v", c, got, err)
		}
	}
	if _, err := ParseCPUMax("hold"); err == nil || !strings.Contains(err.Error(), "one of enforce, refuse") {
		t.Errorf("error %v", err)
	}
	var back Plan
	text, err := json.Marshal(Plan{CPUMax: CPUMaxRefuse})
	if err != nil || !strings.Contains(string(text), `"cpu_max":"refuse"`) {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal(text, &back); err != nil || back.CPUMax != CPUMaxRefuse {
		t.Errorf("read back %v, %v", back.CPUMax, err)
	}
}
