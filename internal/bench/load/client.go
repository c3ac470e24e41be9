// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// never marks a request that was not sent, or not answered.
const never = -1

// client is the state of the one thread that sends and receives.
type client struct {
	todo     []arrival
	sent     []int64 // when, ns since start; never
	answered []int64
	next     int // of todo, the first not sent
	conns    []*conn
	proto    protocol
	request  []byte // the one being sent
	epoll    int
	ready    [64]unix.EpollEvent
	idle     uint64 // what spinning computes, kept so that it is computed
	open     int    // requests sent and not answered
	wrong    int

	zero      time.Time     // the start
	monotonic time.Duration // the same on CLOCK_MONOTONIC

	watch *watch
}

// conn is one connection. The server answers a connection's requests in order.
type conn struct {
	fd      int
	out     []byte // bytes the socket did not take yet
	in      []byte
	filled  int
	waiting []uint32 // numbers of the unanswered requests, oldest at head
	head    int
}

func newClient(conns []*conn, todo []arrival, proto protocol) (*client, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	c := &client{todo: todo, conns: conns, proto: proto, epoll: epoll}
	// Written once here, so that no page of it is missing while driving.
	c.sent, c.answered = make([]int64, len(todo)), make([]int64, len(todo))
	for i := range todo {
		c.sent[i], c.answered[i] = never, never
	}
	for i, cn := range conns {
		cn.waiting = make([]uint32, 0, len(todo)/len(conns)*2+16)
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, cn.fd, &ev); err != nil {
			return nil, fmt.Errorf("watch connection %d: %w", i, err)
		}
	}
	return c, nil
}

func (c *client) close() { _ = unix.Close(c.epoll) }

// startAt sets the start to lead from now, on both clocks.
func (c *client) startAt(lead time.Duration) {
	var ts unix.Timespec
	// CLOCK_MONOTONIC cannot fail with a valid pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	c.zero = time.Now().Add(lead)
	c.monotonic = time.Duration(ts.Nano()) + lead
}

// now is the time since the start, by the vDSO: no system call.
func (c *client) now() int64 { return int64(time.Since(c.zero)) }

// drive sends every request when it is due and collects the answers, until
// all are in, and the last look is taken, or deadline has passed.
func (c *client) drive(ctx context.Context, deadline int64) error {
	for c.next < len(c.todo) || c.open > 0 || len(c.watch.due) > 0 {
		now, err := c.sendDue()
		if err != nil {
			return err
		}
		c.watch.pass(now)
		if c.open == 0 {
			c.idle = spin(c.idle)
			continue
		}
		if now > deadline || ctx.Err() != nil {
			break
		}
		if err := c.receive(); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// sendDue sends what is due by now, and returns what time it is then.
func (c *client) sendDue() (int64, error) {
	now := c.now()
	for c.next < len(c.todo) && c.todo[c.next].due <= now {
		if err := c.send(c.next, now); err != nil {
			return now, err
		}
		c.next++
		now = c.now()
	}
	return now, nil
}

// spin burns a fraction of a microsecond between two looks at the clock. A
// clock read ends a translated block in an emulator and is far dearer there
// than this loop.
func spin(x uint64) uint64 {
	for range 64 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// send writes request i. It rotates over the connections, so that all of the
// server's threads get the same share.
func (c *client) send(i int, now int64) error {
	cn, a := c.conns[i%len(c.conns)], c.todo[i]
	c.sentAt(cn, i, now)
	if len(cn.out) > 0 {
		cn.out = c.proto.ask(cn.out, a, uint32(i))
		return cn.flush()
	}
	// The usual case: no copy through the connection's buffer.
	c.request = c.proto.ask(c.request[:0], a, uint32(i))
	n, err := write(cn.fd, c.request)
	if err != nil {
		return err
	}
	cn.out = append(cn.out, c.request[n:]...)
	return nil
}

func (c *client) sentAt(cn *conn, i int, now int64) {
	c.sent[i] = now
	cn.waiting = append(cn.waiting, uint32(i))
	c.open++
}

// flush writes what an earlier full socket left over.
func (cn *conn) flush() error {
	if len(cn.out) == 0 {
		return nil
	}
	n, err := write(cn.fd, cn.out)
	if err != nil {
		return err
	}
	cn.out = cn.out[:copy(cn.out, cn.out[n:])]
	return nil
}

// receive takes whatever answers have arrived, without waiting for any.
func (c *client) receive() error {
	n, err := poll(c.epoll, c.ready[:])
	if err != nil {
		return err
	}
	for i := range n {
		if err := c.receiveFrom(c.conns[c.ready[i].Fd]); err != nil {
			return err
		}
		// No request waits until the answers of all connections are in.
		if _, err := c.sendDue(); err != nil {
			return err
		}
	}
	if n > 0 {
		return nil
	}
	for _, cn := range c.conns {
		if err := cn.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) receiveFrom(cn *conn) error {
	if cn.filled == len(cn.in) {
		return errTooLong
	}
	n, err := read(cn.fd, cn.in[cn.filled:])
	if err != nil {
		return err
	}
	at := c.now()
	cn.filled += n
	used := 0
	for used < cn.filled {
		if cn.head == len(cn.waiting) {
			return fmt.Errorf("receive answer: %q answers no request", cn.in[used:min(cn.filled, used+80)])
		}
		// The oldest open request is the only one the next answer can belong to.
		i := cn.waiting[cn.head]
		ok, took, err := c.proto.read(cn.in[used:cn.filled], c.todo[i], i)
		if err != nil {
			return fmt.Errorf("receive answer: %w", err)
		}
		if took == 0 {
			break
		}
		used += took
		cn.head++
		c.open--
		c.answered[i] = at
		if !ok {
			c.wrong++
		}
	}
	cn.filled = copy(cn.in, cn.in[used:cn.filled])
	return nil
}

var (
	errClosed  = errors.New("the server closed the connection")
	errTooLong = errors.New("receive answer: it is longer than any that was asked for")
)

// poll, write and read go to the kernel without telling Go's scheduler: nothing else
// is to run on this thread, and a call costs half.
func poll(epoll int, ready []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&ready[0])), uintptr(len(ready)), 0, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, fmt.Errorf("wait for answers: %w", errno)
}

func write(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, fmt.Errorf("send request: %w", errno)
}

func read(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	switch {
	case errno == unix.EAGAIN, errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, fmt.Errorf("receive answer: %w", errno)
	case n == 0:
		return 0, fmt.Errorf("receive answer: %w", errClosed)
	}
	return int(n), nil
}

// usualBuffer takes the answers that a connection usually has under way.
const usualBuffer = 256 << 10

// buffer is the size of a connection's: it holds the longest answer to l whole.
func buffer(l bench.Load) int { return max(usualBuffer, maxLine+l.ValueBytes) }

// dial opens l's connections and takes them from Go's poller.
func dial(ctx context.Context, addr string, l bench.Load) ([]*conn, error) {
	var conns []*conn
	for range l.Conns {
		cn, err := dialOne(ctx, addr, buffer(l))
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		conns = append(conns, cn)
	}
	return conns, nil
}

func dialOne(ctx context.Context, addr string, size int) (*conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	defer nc.Close()
	f, err := nc.(*net.TCPConn).File() // a duplicate, outside the poller
	if err != nil {
		return nil, fmt.Errorf("take connection to %s: %w", addr, err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("take connection to %s: %w", addr, err)
	}
	// Go has set TCP_NODELAY already.
	return &conn{fd: fd, in: make([]byte, size)}, nil
}

func closeAll(conns []*conn) {
	for _, cn := range conns {
		_ = unix.Close(cn.fd)
	}
}

// prepare makes the protocol's requests that come before the load, waiting for
// each answer.
func prepare(cn *conn, proto protocol) error {
	for number, a := range proto.before() {
		if err := ask(cn, proto, a, uint32(number)); err != nil {
			return fmt.Errorf("store key %d: %w", a.key, err)
		}
	}
	return nil
}

func ask(cn *conn, proto protocol, a arrival, number uint32) error {
	if _, err := unix.Write(cn.fd, proto.ask(nil, a, number)); err != nil {
		return err
	}
	for filled := 0; ; {
		if filled == len(cn.in) {
			return errTooLong
		}
		n, err := unix.Read(cn.fd, cn.in[filled:])
		if err != nil {
			return err
		}
		if n == 0 {
			return errClosed
		}
		filled += n
		ok, took, err := proto.read(cn.in[:filled], a, number)
		switch {
		case err != nil:
			return err
		case took == 0:
			continue
		case took != filled || !ok:
			return fmt.Errorf("server answered %.80q", cn.in[:filled])
		}
		return nil
	}
}
