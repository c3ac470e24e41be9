// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/work"
)

func TestParsePgbenchLog(t *testing.T) {
	got, err := parsePgbenchLog("0 1 4711 0 1767225606 500000\n7 12 9000 0 1767225607 1 2500\n")
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0]; a.end != 1767225606500*ms || a.end-a.due != 4711*time.Microsecond || a.lag != 0 || a.client != 0 {
		t.Errorf("%+v", a)
	}
	if b := got[1]; b.end-b.due != 9*ms || b.lag != 2500*time.Microsecond || b.client != 7 {
		t.Errorf("%+v", b)
	}
	for _, bad := range []string{
		"\n", "0 1 2 0 4\n", "0 1 failed 0 1 2\n", "0 1 skipped 0 1 2 3\n", "0 1 -5 0 1 2\n", "0 1 5 0 1 1000000\n",
		"0 1 2 0 1 2 3\n", "0 1 2 0 1 2 1 9\n", "0 1 99999999999 0 1 2\n",
	} {
		if _, err := parsePgbenchLog(bad); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

func TestParseSysbenchNotes(t *testing.T) {
	got, err := parseSysbenchNotes("3 1767225606000000001 1767225606000000501 1767225606000001001\n")
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0]; a.due != 1767225606000000001 || a.end-a.due != 1000 || a.lag != 500 || a.client != 3 {
		t.Errorf("%+v", a)
	}
	for _, bad := range []string{"1 2 3 4", "1 2 3\n", "1 3 2 4\n", "1 2 4 3\n", "x 1 2 3\n", "1 -2 3 4\n"} {
		if _, err := parseSysbenchNotes(bad); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// Whatever is taken for a log has transactions that began before they ended.
func fuzzTransactions(f *testing.F, parse func(string) ([]transaction, error), seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parse(text)
		if err == nil && len(all) != strings.Count(text, "\n") && len(all) != strings.Count(text, "\n")+1 {
			t.Fatalf("%d transactions of %q", len(all), text)
		}
		for _, a := range all {
			if a.end < a.due || a.lag < 0 || a.lag > a.end-a.due || a.end < 0 {
				t.Fatalf("%q: %+v", text, a)
			}
		}
	})
}

func FuzzParsePgbenchLog(f *testing.F) {
	fuzzTransactions(f, parsePgbenchLog, "0 1 4711 0 1767225606 500000\n", "0 1 4711 0 1767225606 500000 17\n")
}

func FuzzParseSysbenchNotes(f *testing.F) {
	fuzzTransactions(f, parseSysbenchNotes, "3 1 2 3\n", "0 0 0 0\n")
}

func TestTransactionsOfTheWindow(t *testing.T) {
	tx := func(due, end float64) transaction {
		return transaction{due: time.Duration(due * 1e6), end: time.Duration(end * 1e6), lag: 1000}
	}
	// Out of order, as of several files: one that ended before, one that began
	// before, two within, one that was due within and ended after, one after.
	all := []transaction{tx(90, 140), tx(-20, -10), tx(10, 12), tx(-5, 1), tx(80, 83), tx(101, 103)}
	r := transacted(all, 100*ms, false)
	if r.Requests != 3 || r.Latency.Count() != 3 || r.Latency.Max() < 49*ms || r.Achieved != 30 || r.Offered != 0 || r.Parts != nil {
		t.Errorf("%+v", r)
	}
	if r.Values[bench.ValueFirst] != -10e6 || r.Values[bench.ValueLast] != 140e6 || r.Values[bench.ValueSilence] != 71e6 {
		t.Errorf("values %v", r.Values)
	}
	if len(r.Slowest) != 3 || r.Slowest[0].Due != 90*ms || r.Slowest[2].Latency != 2*ms {
		t.Errorf("slowest %+v", r.Slowest)
	}
	open := transacted(all, 100*ms, true)
	if open.Offered != 30 || open.Parts[partLag].Count() != 3 {
		t.Errorf("by a rate: %+v", open)
	}
	if none := transacted(nil, 100*ms, false); none.Latency != nil || none.Values[bench.ValueSilence] != 100e6 {
		t.Errorf("no transaction: %+v", none)
	}
}

func TestSamplesAreHeldAgainstTheQuota(t *testing.T) {
	var samples []usageSample
	for i := range 12 {
		at := time.Duration(i) * 100 * ms
		samples = append(samples, usageSample{at: 7*ms + at + time.Duration(i%2)*10*time.Microsecond, usage: []time.Duration{0, at * 3 / 2}})
	}
	samples[5].usage[1] += 15 * ms
	q := bench.Quota{Quota: 150 * ms, Period: 100 * ms}
	got := sampledUses(samples, 1, work.Stretches(q, nil, 1100*ms), 7*ms)
	if len(got) != 2 || got[0].Spans != 11 || got[1].Spans != 2 {
		t.Fatalf("%+v", got)
	}
	if u := got[0]; math.Abs(u.Max-1.1) > .01 || math.Abs(u.Min-.9) > .01 {
		t.Errorf("over 100 ms: %+v", u)
	}
	if u := got[1]; math.Abs(u.Max-1) > .001 || math.Abs(u.Min-1) > .001 {
		t.Errorf("over 1 s: %+v", u)
	}
}

func TestReadUntilKeepsWhatWasSaid(t *testing.T) {
	if said, err := readUntil(strings.NewReader("one\nnow ready\nmore\n"), "ready"); err != nil || said != "one\n" {
		t.Errorf("%q, %v", said, err)
	}
	if said, err := readUntil(strings.NewReader("one\ntwo\n"), "ready"); err == nil || said != "one\ntwo" {
		t.Errorf("%q, %v", said, err)
	}
}

func TestClientsAreToldWhatToDo(t *testing.T) {
	c := clientSpec{dir: t.TempDir(), clients: 16, rate: 900, seconds: 3, seed: 5, params: map[string]float64{"branches": 16, "accounts": 1000, "tables": 4, "rows": 2000}}
	for name, tc := range map[string]struct {
		sw   databaseSoftware
		want []string
	}{
		"pgbench":  {&postgresql{}, []string{"-c 16", "-T 3", "-R 900", "--random-seed=5", "-s 16"}},
		"sysbench": {&mariadb{}, []string{"--threads=16", "--time=3", "--rand-seed=5", "--tables=4", "--table-size=2000"}},
	} {
		cmd := tc.sw.client(t.Context(), c)
		if cmd.Err != nil && !strings.Contains(cmd.Err.Error(), "executable") {
			t.Errorf("%s: %v", name, cmd.Err)
		}
		for _, want := range tc.want {
			if text := strings.Join(cmd.Args, " "); !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in %s", name, want, text)
			}
		}
	}
	if _, err := (&postgresql{}).transactions(t.TempDir()); err == nil {
		t.Error("no log was taken for a log")
	}
}
