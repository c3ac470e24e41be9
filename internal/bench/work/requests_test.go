// SPDX-License-Identifier: Apache-2.0

package work

import (
	"math"
	"testing"
	"time"
)

func requestSpec() Spec {
	s := base(KindRequests)
	s.Rate, s.Work, s.Busy = 0, 50*time.Microsecond, 2*time.Millisecond
	return s
}

// Each request takes as long as it computes at least, and there is always one.
func TestRequestsWithoutARateNeverPause(t *testing.T) {
	spec := requestSpec()
	spec.Window = 500 * time.Millisecond
	o, err := outcome(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	if o.Latency == nil || o.Requests != int(o.Latency.Count()) || o.Lost != 0 || o.Achieved == 0 {
		t.Fatalf("%+v", o.Result)
	}
	if least := o.Latency.Quantile(.01); least < spec.Busy*8/10 {
		t.Errorf("a request of %v took %v", spec.Busy, least)
	}
	if busy, claimed := o.Values[ValueBusy], o.Values[ValueClaimed]; math.Abs(busy/claimed-1) > .3 {
		t.Errorf("units claim %.1f ms and used %.1f ms", claimed/1e6, busy/1e6)
	}
	var used time.Duration
	for _, u := range o.Trace.Use {
		used += u
	}
	if diff := float64(used)/o.Values[ValueBusy] - 1; math.Abs(diff) > .2 {
		t.Errorf("traced %v of %.1f ms", used, o.Values[ValueBusy]/1e6)
	}
	if most := time.Duration(spec.Threads) * spec.Window; used > most*101/100 {
		t.Errorf("traced %v of %d threads in %v", used, spec.Threads, spec.Window)
	}
	if w := o.Trace.Wanted; len(w) != 1 || w[0].From != 0 || w[0].To != spec.Window {
		t.Errorf("work was wanted in %v, expected the whole window", w)
	}
}

// A thread that must stop for 60 ms of each 100 is seen to stop.
func TestRequestsSeeThatTheyStop(t *testing.T) {
	th := &thread{plan: &plan{from: 1000, to: 1000 + int64(100*ms)}, done: newSamples(1), stamps: newStamps(8, int64(ms), 1)}
	s := &th.stamps
	// Stamps as a clock would have given them: running, stopped, running.
	s.from = 1000
	th.closeSegment(1000 + int64(20*ms))
	s.from = 1000 + int64(80*ms)
	th.closeSegment(1000 + int64(100*ms))
	th.done.add(1000, int64(100*ms))
	w := &work{spec: Spec{Kind: KindRequests, Window: 100 * ms}, plan: th.plan, threads: []*thread{th}}
	tr, err := w.trace()
	if err != nil || tr.Stopped() != 60*ms {
		t.Errorf("stopped for %v, %v; want 60ms", tr.Stopped(), err)
	}
	s.lost = 1
	if _, err := w.trace(); err == nil {
		t.Error("a trace with holes was accepted")
	}
}

func TestRequestsAtARateWaitTheirTurn(t *testing.T) {
	spec := requestSpec()
	spec.Rate, spec.Window = 100, 400*time.Millisecond
	o, err := outcome(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	if o.Offered == 0 || math.Abs(o.Offered*spec.Window.Seconds()-float64(o.Requests)) > .5 || o.Lost != 0 {
		t.Errorf("%.1f a second drawn, %d requests, %d lost", o.Offered, o.Requests, o.Lost)
	}
	if stopped := len(o.Trace.Wanted); stopped < 2 {
		t.Errorf("work was wanted without a pause: %v", o.Trace.Wanted)
	}
}

func TestRequestsAreOfUnits(t *testing.T) {
	spec := requestSpec()
	spec.Busy = 75 * time.Microsecond
	if _, err := newWork(spec); err == nil {
		t.Error("one and a half units were accepted")
	}
}
