// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/temper-sched/temper/internal/bench/http1"
)

// poolSize is how many connections a service holds to one it calls, as many
// calls as may be under way at once. Further ones wait.
const poolSize = 16

// Connecting: the processes of a chain start in any order.
const (
	connectEvery = 20 * time.Millisecond
	connectBound = time.Minute
)

// pool holds a caller's connections to one service, used in turn.
type pool struct {
	addr string
	idle chan *conn
}

// conn is one connection; nc is nil after it broke, until the next call.
type conn struct {
	nc      net.Conn
	in, out []byte
}

// newPool connects to addr, waiting for it to listen.
func newPool(ctx context.Context, addr string) (*pool, error) {
	ctx, cancel := context.WithTimeout(ctx, connectBound)
	defer cancel()
	p := &pool{addr: addr, idle: make(chan *conn, poolSize)}
	for range poolSize {
		c := &conn{in: make([]byte, http1.MaxHead)}
		for {
			err := c.dial(ctx, addr)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return nil, errors.Join(err, context.Cause(ctx))
			case <-time.After(connectEvery):
			}
		}
		p.idle <- c
	}
	return p, nil
}

func (c *conn) dial(ctx context.Context, addr string) (err error) {
	c.nc, err = (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", addr)
	if err != nil {
		c.nc = nil
	}
	return err
}

// call sends q and returns the services it went through.
func (p *pool) call(ctx context.Context, q query) (uint32, error) {
	c := <-p.idle
	defer func() { p.idle <- c }()
	if c.nc == nil {
		if err := c.dial(ctx, p.addr); err != nil {
			return 0, fmt.Errorf("call %s: %w", p.addr, err)
		}
	}
	visited, err := c.ask(q)
	if err != nil {
		_ = c.nc.Close()
		c.nc = nil
		return 0, fmt.Errorf("call %s: %w", p.addr, err)
	}
	return visited, nil
}

// ask sends q and waits for its answer.
func (c *conn) ask(q query) (uint32, error) {
	c.out = http1.AppendRequest(c.out[:0], q.path, q.number)
	if _, err := c.nc.Write(c.out); err != nil {
		return 0, err
	}
	for filled := 0; ; {
		n, err := c.nc.Read(c.in[filled:])
		if err != nil {
			return 0, err
		}
		filled += n
		res, took, err := http1.ParseResponse(c.in[:filled])
		switch {
		case err != nil:
			return 0, err
		case took == 0:
			continue
		case took != filled || res.Number != q.number || res.Status != http.StatusOK:
			return 0, fmt.Errorf("answer %d to request %d with status %d", res.Number, q.number, res.Status)
		}
		return parseVisited(res.Body)
	}
}
