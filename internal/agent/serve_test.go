// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/config"
)

// serving is an agent that answers on the loopback.
type serving struct {
	*Agent
	at string
}

func serve(t *testing.T) serving {
	t.Helper()
	w := newWorld()
	a := New(Config{Agent: config.DefaultAgent()}, w.machine(), fakeCgroups{w}, fakeCluster{w}, slog.New(slog.DiscardHandler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- a.Serve(t.Context(), l) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return serving{a, l.Addr().String()}
}

// ask asks from an address of the loopback for /healthz, and returns the first
// line of the answer. The connection stays open if the agent lets it.
func (s serving) ask(t *testing.T, from, header string) (string, *bufio.Reader) {
	t.Helper()
	s.beat.Store(int64(s.Machine.Uptime()))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // of kubelet's probes
	fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n%s\r\n", header)
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return err.Error(), r
	}
	return strings.TrimSpace(line), r
}

// probe is what kubelet does: a connection for each request.
func (s serving) probe(t *testing.T, from string) {
	t.Helper()
	line, r := s.ask(t, from, "Connection: close\r\n")
	_, _ = r.WriteTo(io.Discard) // until the agent has closed it
	if line != "HTTP/1.1 200 OK" {
		t.Fatalf("the probe from %s got %q", from, line)
	}
}

// TestProbesBesideOneThatHoldsConnections: a pod opens many connections, asks
// once on each and leaves them open.
func TestProbesBesideOneThatHoldsConnections(t *testing.T) {
	s := serve(t)
	answered := 0
	for range 2 * maxConns {
		line, _ := s.ask(t, "127.0.0.3", "")
		if strings.Contains(line, "timeout") {
			t.Fatal("a connection waits for others")
		}
		if line == "HTTP/1.1 200 OK" {
			answered++
		}
	}
	if answered != maxConnsFrom {
		t.Errorf("%d connections of one address were answered, want %d", answered, maxConnsFrom)
	}
	for range 2 * maxConnsFrom {
		s.probe(t, "127.0.0.2")
	}
}

// TestProbesBesideManyThatHoldConnections: so do many pods, or one of many
// addresses.
func TestProbesBesideManyThatHoldConnections(t *testing.T) {
	s := serve(t)
	for pod := range 2 * maxConns / maxConnsFrom {
		for range maxConnsFrom {
			if line, _ := s.ask(t, fmt.Sprintf("127.0.1.%d", 1+pod), ""); line != "HTTP/1.1 200 OK" {
				t.Fatalf("pod %d got %q", pod, line)
			}
		}
		s.probe(t, "127.0.0.2")
	}
}
