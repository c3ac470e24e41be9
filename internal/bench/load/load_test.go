// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// spec is a small load for tests on a busy machine.
func spec(name Protocol, addr string) Spec {
	return Spec{
		Addr: addr, Protocol: name, Targets: []Target{{"/search/", 2}, {"/user/", 1}},
		Seed: 1, Rate: 1000, Grace: 5 * time.Second,
		Load: bench.Load{
			Arrivals: bench.ArrivalsPoisson, Conns: 2, Keys: 10, ValueBytes: 20, SetEvery: 10,
			Warmup: 100 * time.Millisecond, Window: time.Second, Pad: 10 * time.Millisecond,
		},
	}
}

// A client that waits for an answer before it sends the next request would
// see one slow request in a stall. This one must see all that were due in it.
func TestStallIsChargedToEveryRequestDueInIt(t *testing.T) {
	for _, name := range []Protocol{Memcached, Redis, HTTP} {
		t.Run(string(name), func(t *testing.T) { testStall(t, name) })
	}
}

func testStall(t *testing.T, name Protocol) {
	const stall = 400 * time.Millisecond
	stallAt := make(chan time.Time, 1)
	s := spec(name, newStallingServer(t, answers[name], stallAt, stall))
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

// newStallingServer answers, and once stops for a while.
func newStallingServer(t *testing.T, answer func(*bufio.Scanner) string, stallAt <-chan time.Time, stall time.Duration) string {
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
				go serve(nc, answer, gate)
			}
		}
	}()
	return ln.Addr().String()
}

func serve(nc net.Conn, answer func(*bufio.Scanner) string, gate chan struct{}) {
	defer nc.Close()
	in := bufio.NewScanner(nc)
	in.Buffer(nil, 2*maxValue)
	for in.Scan() {
		text := answer(in)
		<-gate
		if _, err := io.WriteString(nc, text); err != nil {
			return
		}
		gate <- struct{}{}
	}
}

// value is what a store of the tests' holds for a key.
func value(key string) string { return (key + strings.Repeat("v", 20))[:20] }

// answers are servers that can do just what the client asks: each has the
// request's first line and reads the others.
var answers = map[Protocol]func(in *bufio.Scanner) string{
	Memcached: func(in *bufio.Scanner) string {
		f := strings.Fields(in.Text())
		if f[0] == "ms" {
			in.Scan() // the value
			return "HD " + f[3] + "\r\n"
		}
		return "VA 20 " + f[3] + "\r\n" + value(f[1]) + "\r\n"
	},
	Redis: func(in *bufio.Scanner) string {
		var words []string
		count, _ := strconv.Atoi(in.Text()[1:])
		for range count {
			in.Scan() // the length
			in.Scan()
			words = append(words, in.Text())
		}
		if words[0] == "SET" {
			return "+OK\r\n"
		}
		return "$20\r\n" + value(words[1]) + "\r\n"
	},
	HTTP: func(in *bufio.Scanner) string {
		number := ""
		for in.Scan() && in.Text() != "" {
			if text, ok := strings.CutPrefix(in.Text(), "X-Request-Number: "); ok {
				number = text
			}
		}
		return "HTTP/1.1 200 OK\r\nX-Request-Number: " + number + "\r\nContent-Length: 2\r\n\r\nok"
	},
}

func TestValuesMayBeLong(t *testing.T) {
	stored := ""
	s := spec(Memcached, newStallingServer(t, func(in *bufio.Scanner) string {
		f := strings.Fields(in.Text())
		if f[0] == "ms" {
			in.Scan()
			stored = in.Text()
			return "HD " + f[3] + "\r\n"
		}
		return "VA " + strconv.Itoa(len(stored)) + " " + f[3] + "\r\n" + stored + "\r\n"
	}, nil, 0))
	s.Rate, s.Load.Conns, s.Load.Keys, s.Load.ValueBytes, s.Load.Window = 50, 1, 1, maxValue, 200*time.Millisecond
	result, err := Run(t.Context(), s, func(Started) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Primary; got.Requests == 0 || got.Lost != 0 || got.Wrong != 0 {
		t.Errorf("%d requests, %d lost, %d wrong", got.Requests, got.Lost, got.Wrong)
	}
}

func TestAnAnswerWithoutEndIsAnError(t *testing.T) {
	s := spec(HTTP, newStallingServer(t, func(in *bufio.Scanner) string {
		right := answers[HTTP](in)
		return strings.Replace(right, "Content-Length: 2", "Content-Length: 1000000", 1) + strings.Repeat("k", 999_998)
	}, nil, 0))
	if _, err := Run(t.Context(), s, func(Started) error { return nil }); !errors.Is(err, errTooLong) {
		t.Errorf("error %v", err)
	}
}

func TestWrongAnswersAreCounted(t *testing.T) {
	s := spec(Redis, newStallingServer(t, func(in *bufio.Scanner) string {
		if right := answers[Redis](in); strings.HasPrefix(right, "+") {
			return right
		}
		return "$-1\r\n" // it has lost the key
	}, nil, 0))
	s.Load.Conns = 1
	result, err := Run(t.Context(), s, func(Started) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Primary; got.Wrong < got.Requests/2 || got.Lost != 0 {
		t.Errorf("%d of %d requests missed, but %d are wrong and %d lost", got.Requests*9/10, got.Requests, got.Wrong, got.Lost)
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
	if _, err := Run(t.Context(), spec(HTTP, ln.Addr().String()), func(Started) error { return nil }); err == nil {
		t.Error("a server that closes every connection was measured")
	}
}

func TestRealMemcached(t *testing.T) {
	testReal(t, Memcached, "memcached", func(port string) []string {
		return []string{"-u", "nobody", "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "2", "-m", "16"}
	})
}

func TestRealRedis(t *testing.T) {
	testReal(t, Redis, "redis-server", func(port string) []string {
		return []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}
	})
}

func testReal(t *testing.T, name Protocol, program string, args func(port string) []string) {
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed; the guest tests run it", program)
	}
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, path, args(port)...)
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	waitFor(t, addr)
	s := spec(name, addr)
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
