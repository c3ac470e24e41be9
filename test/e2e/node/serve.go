// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"

	"github.com/temper-sched/temper/test/e2e/place"
)

// serve answers the test on the host. Whoever reaches the port may do anything:
// the machine is a test's.
func serve(log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		args := r.URL.Query()["arg"]
		cmd := exec.CommandContext(r.Context(), args[0], args[1:]...)
		cmd.Stdin = r.Body
		out, err := cmd.CombinedOutput()
		if err != nil {
			log.WarnContext(r.Context(), "command failed", "args", args, "err", err)
			w.Header().Set(place.ErrorHeader, err.Error())
		}
		_, _ = w.Write(out)
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			connect(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	return http.ListenAndServe(place.NodeIP+":"+place.Port, handler)
}

// connect tunnels the API server's connections to kubelet and to pods.
func connect(w http.ResponseWriter, r *http.Request) {
	to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	from, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		to.Close()
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
	relay(struct {
		io.Reader
		io.WriteCloser
	}{buffered, from}, to)
}

// relay copies both ways until one side ends.
func relay(a, b io.ReadWriteCloser) {
	done := make(chan struct{}, 2)
	for _, c := range []struct {
		to   io.Writer
		from io.Reader
	}{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(c.to, c.from)
			done <- struct{}{}
		}()
	}
	<-done
	a.Close()
	b.Close()
	<-done
}

// forward stands in for kube-proxy, for the one service that the tests need:
// it takes the API server's cluster address and passes connections on.
func forward(ctx context.Context, service, api string) error {
	host, _, err := net.SplitHostPort(service)
	if err != nil {
		return fmt.Errorf("read service address: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "ip", "address", "add", host+"/32", "dev", "lo").CombinedOutput(); err != nil {
		return fmt.Errorf("add address %s: %w: %s", host, err, out)
	}
	l, err := net.Listen("tcp", service)
	if err != nil {
		return err
	}
	for {
		from, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			to, err := net.Dial("tcp", api)
			if err != nil {
				from.Close()
				return
			}
			relay(from, to)
		}()
	}
}
