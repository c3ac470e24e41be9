// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"math/bits"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestThereAreNineteenServicesAndEachIsCalled(t *testing.T) {
	services := Services()
	if len(services) != 19 || services[0].Name != "frontend" {
		t.Fatalf("%d services, the first is %s", len(services), services[0].Name)
	}
	called := map[string]bool{"frontend": true}
	for i, s := range services {
		if s.Work <= 0 || s.Bytes < visitedDigits {
			t.Errorf("%s: work %v, %d bytes", s.Name, s.Work, s.Bytes)
		}
		for _, stage := range s.stages {
			called[stage.to] = true
			if to := index(stage.to); to <= i {
				t.Errorf("%s calls %s, which is not below it", s.Name, stage.to)
			}
			if stage.every < 1 || stage.times < 1 || len(stage.on) == 0 {
				t.Errorf("%s: call %+v", s.Name, stage)
			}
		}
	}
	if len(called) != len(services) {
		t.Errorf("%d of %d services are called", len(called), len(services))
	}
	if _, err := Addr("mongodb"); err == nil {
		t.Error("an unknown service has an address")
	}
}

func TestMixIsOfEveryKindAndReadOnly(t *testing.T) {
	sum := 0
	for i, target := range Mix() {
		if target.Path != path(kinds[i]) {
			t.Errorf("target %d is %q", i, target.Path)
		}
		sum += target.Weight
	}
	if len(Mix()) != len(kinds) || sum != 100 {
		t.Errorf("%d targets of weight %d", len(Mix()), sum)
	}
}

func TestCallsAreMadeAsOftenAsTheySay(t *testing.T) {
	const requests = 100_000
	miss := stage{to: "rate-store", on: kinds, every: perMiss, times: fanOut}
	other := stage{to: "profile-store", on: kinds, every: perMiss, times: fanOut}
	made, both := 0, 0
	for number := range uint32(requests) {
		if miss.makes(search, number) {
			made++
			if other.makes(search, number) {
				both++
			}
		}
	}
	if share := float64(made) * perMiss / requests; share < .97 || share > 1.03 {
		t.Errorf("%d of %d requests miss, want one in %d", made, requests, perMiss)
	}
	if share := float64(both) * perMiss * perMiss / requests; share < .9 || share > 1.1 {
		t.Errorf("%d of %d requests miss in both caches: the two are not independent", both, requests)
	}
	if (stage{to: "user", on: []kind{login}, every: 1}).makes(search, 1) {
		t.Error("a call was made for a kind that it is not for")
	}
}

// start runs the whole chain in this process, each service on a port of its
// own, and returns the addresses. The tracer is net/http's, as a stranger that
// speaks the same protocol; it counts.
func start(t *testing.T, traces *atomic.Int64) map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	addrs, listeners := map[string]string{}, map[string]net.Listener{}
	for _, s := range Services() {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs[s.Name], listeners[s.Name] = ln.Addr().String(), ln
	}
	tracer := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		traces.Add(1)
		w.Header().Set("X-Request-Number", r.Header.Get("X-Request-Number"))
		_, _ = w.Write([]byte("00040000"))
	})}
	go func() { _ = tracer.Serve(listeners["tracer"]) }()
	var ready, ended sync.WaitGroup
	for _, s := range Services() {
		if s.Name == "tracer" {
			continue
		}
		ready.Add(1)
		ended.Go(func() {
			addr := func(name string) (string, error) { return addrs[name], nil }
			if err := serve(ctx, s.Name, listeners[s.Name], addr, func() error { ready.Done(); return nil }); err != nil {
				t.Errorf("serve %s: %v", s.Name, err)
			}
		})
	}
	ready.Wait()
	t.Cleanup(func() { cancel(); _ = tracer.Close(); ended.Wait() })
	return addrs
}

func TestEveryServiceIsHit(t *testing.T) {
	var traces atomic.Int64
	addrs := start(t, &traces)
	p, err := newPool(t.Context(), addrs["frontend"])
	if err != nil {
		t.Fatal(err)
	}
	const requests = 200
	hits := map[string]int{}
	for _, k := range kinds {
		for number := range uint32(requests) {
			visited, err := p.call(t.Context(), query{path: []byte(path(k) + "0042"), number: number})
			if err != nil {
				t.Fatal(err)
			}
			again, err := p.call(t.Context(), query{path: []byte(path(k) + "7"), number: number})
			if err != nil || again != visited {
				t.Fatalf("request %d visited %x, then %x, %v", number, visited, again, err)
			}
			for i, s := range Services() {
				if visited&(1<<i) != 0 {
					hits[s.Name]++
				}
			}
			if k == search && bits.OnesCount32(visited) < 8 {
				t.Errorf("a search went through %d services only", bits.OnesCount32(visited))
			}
		}
	}
	for _, s := range Services()[:18] {
		if hits[s.Name] == 0 {
			t.Errorf("no request went through %s", s.Name)
		}
	}
	if hits["frontend"] != 3*requests || hits["search"] != requests || hits["user-store"] != requests || hits["profile-cache"] != 2*requests {
		t.Errorf("hits: %v", hits)
	}
	// Traces travel when the answers have gone; some may still be under way.
	for deadline := time.Now().Add(10 * time.Second); traces.Load() < requests/perTrace && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if traces.Load() < requests/perTrace {
		t.Errorf("%d traces of %d requests", traces.Load(), 6*requests)
	}
}

func TestFailureOfOneServiceIsSeenAtTheEntranceAndEnds(t *testing.T) {
	var fails atomic.Bool
	fails.Store(true)
	store := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Number", r.Header.Get("X-Request-Number"))
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte("00010000"))
	})}
	down, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = store.Serve(down) }()
	defer store.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() {
		addr := func(string) (string, error) { return down.Addr().String(), nil }
		ended <- serve(ctx, "user", ln, addr, func() error { close(ready); return nil })
	}()
	<-ready
	p, err := newPool(ctx, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	q := query{path: []byte("/user/1"), number: 9}
	if _, err := p.call(ctx, q); err == nil || !strings.Contains(err.Error(), "status 502") {
		t.Errorf("error %v, want status 502", err)
	}
	fails.Store(false)
	for range 2 * poolSize { // every connection, the broken ones too
		if _, err := p.call(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.call(ctx, query{path: []byte("/write/1"), number: 9}); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("error %v, want status 404", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAnswersMakeNoGarbage(t *testing.T) {
	var traces atomic.Int64
	addrs := start(t, &traces)
	p, err := newPool(t.Context(), addrs["geo-store"])
	if err != nil {
		t.Fatal(err)
	}
	q := query{path: []byte("/search/1"), number: 1}
	// Counts caller and service: both are in this process.
	if n := testing.AllocsPerRun(500, func() {
		if _, err := p.call(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations for a call", n)
	}
}

func TestServiceWithoutItsNeighboursSaysWhom(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*connectEvery)
	defer cancel()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	addr := func(string) (string, error) { return dead.Addr().String(), nil }
	err = serve(ctx, "geo", ln, addr, func() error { t.Error("it said it is ready"); return nil })
	if err == nil || !strings.Contains(err.Error(), "connect to geo-store") {
		t.Errorf("error %v", err)
	}
	if err := Run(t.Context(), "mongodb", nil); err == nil {
		t.Error("an unknown service ran")
	}
}

func TestBurnTakesItsTime(t *testing.T) {
	// By the thread's own clock, and by turns: the host has other work.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	took := func(d time.Duration) time.Duration {
		begin := now()
		burn(d)
		return now() - begin
	}
	const d = 10 * time.Millisecond
	a, b := time.Hour, time.Hour
	for range 9 {
		a, b = min(a, took(d)), min(b, took(4*d))
	}
	if b < 2*a || b > 8*a {
		t.Errorf("%v took %v and %v took %v", d, a, 4*d, b)
	}
}
