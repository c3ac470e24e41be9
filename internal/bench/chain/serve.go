// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/temper-sched/temper/internal/bench/http1"
)

// memoryLimit is where the collector would begin after all. A service keeps a
// few hundred KiB and makes next to no garbage.
const memoryLimit = 64 << 20

// Run is the service called name as a process of its own: one thread at a time
// runs Go code, as in a container with one CPU, and no collector. It calls
// ready when it listens and is connected to everything it calls.
func Run(ctx context.Context, name string, ready func() error) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	addr, err := Addr(name)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{KeepAlive: -1}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("start service %s: %w", name, err)
	}
	return serve(ctx, name, ln, Addr, ready)
}

// server is a running service.
type server struct {
	Service
	bit   uint32 // the service's own in the set of visited ones
	pools map[string]*pool
	later chan query // for calls that the answer does not wait for
}

// query is a request as it travels along the chain.
type query struct {
	kind   kind
	path   []byte // of the buffer it came in
	number uint32
}

// laterCalls is how many calls may wait for their turn after the answer; a
// tracer that cannot follow loses traces.
const laterCalls = 64

// serve answers on ln until ctx ends.
func serve(ctx context.Context, name string, ln net.Listener, addr func(string) (string, error), ready func() error) error {
	defer ln.Close()
	s := &server{Service: Services()[index(name)], bit: 1 << index(name), pools: map[string]*pool{}, later: make(chan query, laterCalls)}
	for _, stage := range s.stages {
		to, err := addr(stage.to)
		if err != nil {
			return err
		}
		if s.pools[stage.to], err = newPool(ctx, to); err != nil {
			return fmt.Errorf("start service %s: connect to %s: %w", name, stage.to, err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	go s.callLater(ctx)
	if err := ready(); err != nil {
		return fmt.Errorf("start service %s: %w", name, err)
	}
	for {
		nc, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connection of service %s: %w", name, err)
		}
		go func() {
			defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
			defer nc.Close()
			s.converse(ctx, nc)
		}()
	}
}

// converse answers a connection's requests in order, until it ends or does not
// speak HTTP.
func (s *server) converse(ctx context.Context, nc net.Conn) {
	in, out, filled := make([]byte, http1.MaxHead+1), []byte(nil), 0
	body := bytes.Repeat([]byte{'x'}, s.Bytes)
	for {
		req, took, err := http1.ParseRequest(in[:filled])
		if err != nil {
			return
		}
		if took == 0 {
			n, err := nc.Read(in[filled:])
			if err != nil {
				return
			}
			filled += n
			continue
		}
		out = s.answer(ctx, out[:0], body, req)
		if _, err := nc.Write(out); err != nil {
			return
		}
		filled = copy(in, in[took:filled])
	}
}

// answer does all of the service's work for a request and appends the response
// to out. The body begins with the set of services that the request visited.
func (s *server) answer(ctx context.Context, out, body []byte, req http1.Request) []byte {
	q, ok := parseQuery(req)
	if !ok {
		return http1.AppendResponse(out, http.StatusNotFound, req.Number, nil)
	}
	burn(s.Work / 2)
	visited, err := s.callAll(ctx, q)
	burn(s.Work - s.Work/2)
	if err != nil {
		return http1.AppendResponse(out, http.StatusBadGateway, req.Number, nil)
	}
	putVisited(body, visited|s.bit)
	return http1.AppendResponse(out, http.StatusOK, req.Number, body)
}

// parseQuery takes a path of "/kind/key".
func parseQuery(req http1.Request) (query, bool) {
	name, key, ok := bytes.Cut(req.Path[1:], []byte{'/'})
	if !ok || len(key) == 0 {
		return query{}, false
	}
	for _, k := range kinds {
		if string(name) == string(k) {
			return query{kind: k, path: req.Path, number: req.Number}, true
		}
	}
	return query{}, false
}

// visitedDigits is the length of a set of services at the start of a body.
const visitedDigits = 8

// putVisited writes a set of services, a bit each, in hex.
func putVisited(body []byte, visited uint32) {
	hex.Encode(body, []byte{byte(visited >> 24), byte(visited >> 16), byte(visited >> 8), byte(visited)})
}

func parseVisited(body []byte) (uint32, error) {
	if len(body) < visitedDigits {
		return 0, fmt.Errorf("read visited services %q: too short", body)
	}
	v, err := strconv.ParseUint(string(body[:visitedDigits]), 16, 32)
	if err != nil {
		return 0, fmt.Errorf("read visited services: %w", err)
	}
	return uint32(v), nil
}

// callAll makes the request's calls, stage by stage, and returns the services
// that they went through.
func (s *server) callAll(ctx context.Context, q query) (visited uint32, err error) {
	for i := range s.stages {
		stage := &s.stages[i]
		if !stage.makes(q.kind, q.number) {
			continue
		}
		if stage.after {
			select {
			case s.later <- query{kind: q.kind, path: bytes.Clone(q.path), number: q.number}:
			default:
			}
			continue
		}
		v, err := s.callStage(ctx, stage, q)
		if err != nil {
			return 0, err
		}
		visited |= v
	}
	return visited, nil
}

func (s *server) callStage(ctx context.Context, stage *stage, q query) (uint32, error) {
	p := s.pools[stage.to]
	if stage.times == 1 {
		return p.call(ctx, q)
	}
	var others sync.WaitGroup
	errs := make([]error, stage.times)
	for i := range stage.times - 1 {
		others.Go(func() { _, errs[i] = p.call(ctx, q) })
	}
	visited, err := p.call(ctx, q)
	others.Wait()
	return visited, errors.Join(append(errs, err)...)
}

// callLater makes the calls that no answer waits for, one after another.
func (s *server) callLater(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-s.later:
			for i := range s.stages {
				if s.stages[i].after {
					// A trace that is lost is lost; the answer has gone.
					_, _ = s.pools[s.stages[i].to].call(ctx, q)
				}
			}
		}
	}
}

// burn executes about one instruction for each nanosecond of d.
func burn(d time.Duration) {
	const perRound = 7 // instructions in the loop below, on amd64
	x := uint64(d)
	for range int64(d) / perRound {
		x = x*6364136223846793005 + 1442695040888963407
	}
	runtime.KeepAlive(x)
}
