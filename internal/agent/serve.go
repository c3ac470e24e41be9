// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/temper-sched/temper/internal/metric"
)

const (
	// maxConns is how many connections may be open, and maxConnsFrom how many of
	// one address: more than whoever scrapes or probes has.
	maxConns     = 64
	maxConnsFrom = 8
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
	if err := s.Serve(newLimited(l)); !errors.Is(err, http.ErrServerClosed) {
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
		v, ok := r.read(true)
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
		v, ok := r.read(false)
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

// limited accepts a bounded number of connections, of each address a few: what
// one holds open and lets idle shall not make kubelet's probes wait.
type limited struct {
	net.Listener

	mu   sync.Mutex
	from map[string]int // how many each address has, one that was ended until its handler is
	open []*limitedConn // the oldest first
}

func newLimited(l net.Listener) *limited {
	return &limited{Listener: l, from: map[string]int{}}
}

// Accept returns the next connection that may stay.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close()
	}
}

// admit returns nil if the address has its share. A connection beyond all that
// may be open ends the oldest: however many addresses there are, the newest is
// answered. The server gives up the one that ended at its next read or write.
func (l *limited) admit(c net.Conn) *limitedConn {
	from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[from] >= maxConnsFrom {
		return nil
	}
	if len(l.open) >= maxConns {
		_ = l.open[0].Conn.Close()
		l.open = slices.Delete(l.open, 0, 1)
	}
	admitted := &limitedConn{Conn: c, of: l, address: from}
	l.from[from]++
	l.open = append(l.open, admitted)
	return admitted
}

func (l *limited) forget(c *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[c.address]--; l.from[c.address] == 0 {
		delete(l.from, c.address)
	}
	l.open = slices.DeleteFunc(l.open, func(o *limitedConn) bool { return o == c })
}

type limitedConn struct {
	net.Conn
	of      *limited
	address string
	once    sync.Once
}

// Close makes room for another one, once.
func (c *limitedConn) Close() error {
	c.once.Do(func() { c.of.forget(c) })
	return c.Conn.Close()
}
