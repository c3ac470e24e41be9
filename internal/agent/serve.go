// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/temper-sched/temper/internal/metric"
)

const (
	// maxConns is how many may ask at a time; further ones wait to be accepted.
	maxConns = 64
	// staleAfter is how long the loop may be silent until the agent is unwell.
	staleAfter = 5 * time.Second
	// shutdownWithin lets a scrape that began end.
	shutdownWithin = time.Second
)

// Serve answers on a listener until ctx ends: /healthz, /readyz, /metrics and
// /status, for reading only.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWithin)
		defer cancel()
		_ = s.Shutdown(end) // who still asks then is cut off by the process's end
	})
	defer stop()
	if err := s.Serve(newLimited(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Handler answers what Serve serves.
func (a *Agent) Handler() http.Handler {
	r := &reader{Agent: a}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.health)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if v := a.view.Load(); v == nil || v.Reason == "" {
			http.Error(w, "nothing is decided yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, req *http.Request) {
		v, ok := r.read()
		if !ok {
			http.Error(w, "nothing is decided yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v.Report); err != nil {
			a.Log.DebugContext(req.Context(), "status not written", "err", err)
		}
	})
	mux.Handle("GET /metrics", metric.Handler(func() []metric.Sample {
		v, ok := r.read()
		if !ok {
			return nil
		}
		return v.samples()
	}))
	return mux
}

func (a *Agent) health(w http.ResponseWriter, _ *http.Request) {
	if silent := a.Machine.Uptime() - time.Duration(a.beat.Load()); silent > staleAfter {
		http.Error(w, fmt.Sprintf("the loop has been silent for %s", silent.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// limited accepts a bounded number of connections at a time.
type limited struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	close sync.Once
}

func newLimited(l net.Listener, n int) *limited {
	return &limited{Listener: l, slots: make(chan struct{}, n), done: make(chan struct{})}
}

// Accept waits for a slot first.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, free: func() { <-l.slots }}, nil
}

// Close also ends an Accept that waits for a slot.
func (l *limited) Close() error {
	l.close.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	once sync.Once
	free func()
}

// Close gives the slot back, once.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
