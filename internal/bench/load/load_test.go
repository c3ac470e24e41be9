// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

func TestArrivalsArePoissonAndRepeat(t *testing.T) {
	const rate, total = 5000.0, 20 * time.Second
	a := arrivals(7, rate, total, 100, 10)
	b := arrivals(7, rate, total, 100, 10)
	if len(a) != len(b) || a[len(a)-1] != b[len(b)-1] {
		t.Fatal("the same seed drew different requests")
	}
	if got := float64(len(a)) / total.Seconds(); math.Abs(got/rate-1) > .02 {
		t.Errorf("drew %.0f a second, want %.0f", got, rate)
	}
	// The gaps of a Poisson process have a standard deviation equal to their mean.
	var sum, squares float64
	sets, prev := 0, int64(0)
	for _, r := range a {
		gap := float64(r.due - prev)
		sum, squares, prev = sum+gap, squares+gap*gap, r.due
		if r.set {
			sets++
		}
	}
	mean := sum / float64(len(a))
	if cv := math.Sqrt(squares/float64(len(a))-mean*mean) / mean; math.Abs(cv-1) > .03 {
		t.Errorf("coefficient of variation of the gaps is %.3f, want 1", cv)
	}
	if share := float64(sets) / float64(len(a)); math.Abs(share-.1) > .01 {
		t.Errorf("%.3f of the requests are sets, want 0.1", share)
	}
	if c := arrivals(8, rate, total, 100, 10); c[0] == a[0] {
		t.Error("another seed drew the same first request")
	}
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		in     string
		want   answer
		took   int
		broken bool
	}{
		"value":             {in: "VA 3 O0000000042\r\nabc\r\nHD", want: answer{42, true}, took: 23},
		"stored":            {in: "HD O0000000007\r\n", want: answer{7, true}, took: 16},
		"miss":              {in: "EN O0000000007\r\n", want: answer{7, false}, took: 16},
		"other length":      {in: "VA 2 O0000000042\r\nab\r\n", want: answer{42, false}, took: 22},
		"half a line":       {in: "VA 3 O00000", took: 0},
		"half a value":      {in: "VA 3 O0000000042\r\nab", took: 0},
		"no number":         {in: "EN\r\n", broken: true},
		"not the protocol":  {in: "SERVER_ERROR out of memory\r\n", broken: true},
		"number no number":  {in: "HD Oabc\r\n", broken: true},
		"nothing":           {in: "", took: 0},
		"only a line's end": {in: "\r\n", broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, took, err := parse([]byte(tc.in), 3)
			if (err != nil) != tc.broken {
				t.Fatalf("error %v", err)
			}
			if took != tc.took || (took > 0 && got != tc.want) {
				t.Errorf("got %+v and %d bytes, want %+v and %d", got, took, tc.want, tc.took)
			}
		})
	}
}

func FuzzParseTakesNoMoreThanThereIs(f *testing.F) {
	f.Add([]byte("VA 3 O0000000042\r\nabc\r\n"))
	f.Add([]byte("VA 99999999999999999999 O1\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, took, err := parse(in, 3); err == nil && (took < 0 || took > len(in)) {
			t.Fatalf("took %d bytes of %d", took, len(in))
		}
	})
}

// spec is a small load for tests on a busy machine.
func spec(addr string) Spec {
	return Spec{Addr: addr, Seed: 1, Rate: 1000, Grace: 5 * time.Second, Load: bench.Load{
		Conns: 2, Keys: 10, ValueBytes: 3, SetEvery: 10,
		Warmup: 100 * time.Millisecond, Window: time.Second, Pad: 10 * time.Millisecond,
	}}
}

// A client that waits for an answer before it sends the next request would
// see one slow request in a stall. This one must see all that were due in it.
func TestStallIsChargedToEveryRequestDueInIt(t *testing.T) {
	const stall = 400 * time.Millisecond
	stallAt := make(chan time.Time, 1)
	srv := newStallingServer(t, stallAt, stall)
	s := spec(srv)
	result, err := Run(t.Context(), s, func(Started) error {
		stallAt <- time.Now().Add(lead + s.Load.Warmup + 300*time.Millisecond)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := result.Primary
	if got.Lost != 0 || got.Wrong != 0 || got.Latency.Count() != int64(got.Requests) {
		t.Fatalf("lost %d, wrong %d, %d latencies for %d requests", got.Lost, got.Wrong, got.Latency.Count(), got.Requests)
	}
	// About rate × stall requests were due in the stall, waiting for between
	// nothing and all of it. This machine may add delay, never remove it.
	if len(got.Slowest) != slowest || got.Slowest[0].Latency < stall*8/10 || got.Slowest[0].Latency < got.Slowest[1].Latency {
		t.Errorf("slowest answers: %+v", got.Slowest)
	}
	if p := got.Latency.Quantile(.99); p < stall*8/10 {
		t.Errorf("p99 is %v with a stall of %v in a second", p, stall)
	}
	if p := got.Latency.Quantile(.80); p < stall*3/10 {
		t.Errorf("p80 is %v: most of the stall's requests were not charged", p)
	}
}

// newStallingServer speaks the protocol and once stops for a while.
func newStallingServer(t *testing.T, stallAt <-chan time.Time, stall time.Duration) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	// One gate for all connections: whoever holds it serves.
	gate := make(chan struct{}, 1)
	gate <- struct{}{}
	go func() {
		at := <-stallAt
		time.Sleep(time.Until(at))
		<-gate
		time.Sleep(stall) // the stall itself
		gate <- struct{}{}
	}()
	go func() {
		for {
			nc, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go serve(nc, gate)
			}
		}
	}()
	return ln.Addr().String()
}

func serve(nc net.Conn, gate chan struct{}) {
	defer nc.Close()
	in := bufio.NewScanner(nc)
	for in.Scan() {
		f := strings.Fields(in.Text())
		if len(f) < 4 {
			return
		}
		<-gate
		if f[0] == "ms" {
			in.Scan() // the value
			fmt.Fprintf(nc, "HD %s\r\n", f[3])
		} else {
			fmt.Fprintf(nc, "VA 3 %s\r\nvvv\r\n", f[3])
		}
		gate <- struct{}{}
	}
}

func TestServerThatDiesIsAnError(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_ = nc.Close()
		}
	}()
	defer ln.Close()
	if _, err := Run(t.Context(), spec(ln.Addr().String()), func(Started) error { return nil }); err == nil {
		t.Error("a server that closes every connection was measured")
	}
}

func TestRealMemcached(t *testing.T) {
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("memcached is not installed; the guest tests run it")
	}
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, path, "-u", "nobody", "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "2", "-m", "16")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	waitFor(t, addr)
	s := spec(addr)
	s.Watch = []string{"/proc/sys/kernel/ostype", "/proc/no/such/file"}
	result, err := Run(t.Context(), s, func(Started) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	got := result.Primary
	if n := len(result.Looks); n != looksPerWindow {
		t.Fatalf("%d looks at the watched files, want %d", n, looksPerWindow)
	}
	for _, look := range result.Looks {
		if look.Values[0] != "Linux" || look.Values[1] != "" || look.At < 0 {
			t.Errorf("look %+v", look)
		}
	}
	if got.Lost != 0 || got.Wrong != 0 || got.Requests < 800 || got.Lag.Count() != int64(got.Requests) {
		t.Errorf("%d requests, %d lost, %d wrong, %d lags", got.Requests, got.Lost, got.Wrong, got.Lag.Count())
	}
	t.Logf("p50 %v p99 %v max %v, lag p99 %v, run delay %v", got.Latency.Quantile(.5), got.Latency.Quantile(.99),
		got.Latency.Max(), got.Lag.Quantile(.99), got.RunDelay)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func waitFor(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			_ = nc.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
