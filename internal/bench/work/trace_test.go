// SPDX-License-Identifier: Apache-2.0

package work

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

const ms = time.Millisecond

// at makes spans of milliseconds.
func at(edges ...float64) []Span {
	var out []Span
	for i := 0; i+1 < len(edges); i += 2 {
		out = append(out, Span{time.Duration(edges[i] * 1e6), time.Duration(edges[i+1] * 1e6)})
	}
	return out
}

func TestChargeSpreadsOverTheSpan(t *testing.T) {
	tr := newTrace(4 * ms)
	tr.charge(Span{500 * time.Microsecond, 2500 * time.Microsecond})
	tr.charge(Span{-ms, ms})
	tr.charge(Span{3 * ms, 9 * ms})
	tr.charge(Span{2 * ms, 2 * ms})
	want := []time.Duration{1500 * time.Microsecond, ms, 500 * time.Microsecond, ms}
	if !reflect.DeepEqual(tr.Use, want) {
		t.Errorf("use %v, want %v", tr.Use, want)
	}
}

func TestUnionJoinsAndCuts(t *testing.T) {
	got := union(at(5, 7, -2, 1, 6, 8, 8, 9, 20, 30, 3, 3), 25*ms)
	if want := at(0, 1, 5, 9, 20, 25); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestStoppedIsTheLongestWithWorkAndNobodyRunning(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted, running []Span
		want            time.Duration
	}{
		"between":             {at(0, 100), at(0, 10, 30, 60, 65, 100), 20 * ms},
		"at the start":        {at(0, 100), at(40, 100), 40 * ms},
		"at the end":          {at(0, 100), at(0, 50), 50 * ms},
		"never ran":           {at(10, 20), nil, 10 * ms},
		"nothing to do":       {at(0, 10, 60, 70), at(0, 10, 62, 70), 2 * ms},
		"ran without work":    {at(50, 60), at(0, 55), 5 * ms},
		"ran all the time":    {at(0, 100), at(0, 100), 0},
		"spans several wants": {at(0, 10, 20, 30), at(5, 25), 5 * ms},
	} {
		if got := (Trace{Wanted: tc.wanted, Running: tc.running}).Stopped(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestTracesOfAPodAreJoined(t *testing.T) {
	a := Trace{Use: []time.Duration{1, 2, 3}, Running: at(0, 1), Wanted: at(0, 3)}
	b := Trace{Use: []time.Duration{10, 20, 30}, Running: at(1, 2), Wanted: at(0, 1)}
	got, err := JoinTraces([]Trace{a, b})
	want := Trace{Use: []time.Duration{11, 22, 33}, Running: at(0, 2), Wanted: at(0, 3)}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if a.Use[0] != 1 {
		t.Error("the first trace was changed")
	}
	if _, err := JoinTraces([]Trace{a, {Use: []time.Duration{1}}}); err == nil {
		t.Error("traces of two lengths were joined")
	}
}

// A thread that has its quota at each period's start uses exactly one quota in
// every 100 ms, and up to twice as much in shorter spans.
func TestUsesSlide(t *testing.T) {
	tr := newTrace(1200 * ms)
	for i := range tr.Use {
		if i%100 < 50 {
			tr.Use[i] = 2 * ms
		}
	}
	q := bench.Quota{Quota: 100 * ms, Period: 100 * ms}
	uses := tr.Uses(Stretches(q, nil, 1200*ms))
	if len(uses) != 2 {
		t.Fatalf("uses %+v", uses)
	}
	for i, spans := range []int{1101, 201} {
		if u := uses[i]; u.Spans != spans || math.Abs(u.Min-1) > 1e-9 || math.Abs(u.Max-1) > 1e-9 {
			t.Errorf("over %v: %+v", u.Span, u)
		}
	}
	tr.Use[700] += 10 * ms
	if u := tr.Uses(Stretches(q, nil, 1200*ms))[0]; u.Max < 1.09 || u.Min < .999 {
		t.Errorf("10 ms too much in one span: %+v", u)
	}
}

// Spans lie between changes, and not in the time that a change may take.
func TestUsesLeaveOutChanges(t *testing.T) {
	first, second := bench.Quota{Quota: 100 * ms, Period: 100 * ms}, bench.Quota{Quota: 200 * ms, Period: 100 * ms}
	changes := []bench.LimitChange{{From: 300 * ms, To: 301 * ms, Quota: second}}
	stretches := Stretches(first, changes, 600*ms)
	if len(stretches) != 2 || stretches[0].To != 300*ms || stretches[1].From != 311*ms || stretches[1].Quota != second {
		t.Fatalf("stretches %+v", stretches)
	}
	tr := newTrace(600 * ms)
	for i := range tr.Use {
		switch {
		case i < 300:
			tr.Use[i] = ms
		case i >= 311:
			tr.Use[i] = 2 * ms
		default:
			tr.Use[i] = 50 * ms
		}
	}
	uses := tr.Uses(stretches)
	if len(uses) != 1 || uses[0].Spans != 201+190 || math.Abs(uses[0].Min-1) > 1e-9 || math.Abs(uses[0].Max-1) > 1e-9 {
		t.Errorf("uses %+v", uses)
	}
	if left := Stretches(bench.Quota{Period: 100 * ms}, nil, ms); len(left) != 0 {
		t.Errorf("without a quota: %+v", left)
	}
}
