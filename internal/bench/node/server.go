// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/load"
)

// server is a primary that the load generator drives, from the instrument's CPU.
type server struct {
	node *node
	addr string // where it listens, if not where this program's own would
}

// software is one kind of server as the load generator sees it.
type software struct {
	protocol load.Protocol
	addr     string
	targets  []load.Target
	// start brings it up in the critical pods.
	start func(ctx context.Context) error
}

// Where the servers listen, and where Debian's packages put them.
const (
	memcachedAddr = "127.0.0.1:11211"
	memcachedPath = "/usr/bin/memcached"
	redisAddr     = "127.0.0.1:6379"
	redisPath     = "/usr/bin/redis-server"
)

func (n *node) software() (software, error) {
	switch kind := n.spec.Scenario.Primary.Kind; kind {
	case "memcached":
		return software{protocol: load.Memcached, addr: memcachedAddr, start: n.startMemcached}, nil
	case "redis":
		return software{protocol: load.Redis, addr: redisAddr, start: n.startRedis}, nil
	case chainKind:
		return n.chainSoftware()
	default:
		return software{}, fmt.Errorf("start server: no software of kind %q", kind)
	}
}

// start starts the server and waits until it answers.
func (s *server) start(ctx context.Context) error {
	sw, err := s.node.software()
	if err != nil {
		return err
	}
	if err := sw.start(ctx); err != nil {
		return err
	}
	return waitForServer(ctx, sw.addr)
}

func (n *node) startMemcached(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(memcachedAddr)
	return n.startInPod(ctx, critical+"/ctr", memcachedPath, "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0",
		"-m", "64", "-c", "256", "-t", strconv.Itoa(n.spec.Scenario.Primary.Threads))
}

// startRedis starts Redis as a cache: it writes nothing to disk, so that it
// never forks. Its own bookkeeping stops it for a millisecond; by default ten
// times a second, which is 1 % of the time and just where a p99 lies, so that it
// would say more of that than of the scheduler. Here it is once a second.
func (n *node) startRedis(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(redisAddr)
	return n.startInPod(ctx, critical+"/ctr", redisPath, "--bind", "127.0.0.1", "--port", port, "--dir", os.TempDir(),
		"--save", "", "--appendonly", "no", "--hz", "1", "--io-threads", strconv.Itoa(n.spec.Scenario.Primary.Threads))
}

// startInPod starts a program that lives as long as the run.
func (n *node) startInPod(ctx context.Context, cgroup, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	if err := n.tree.start(cmd, cgroup); err != nil {
		return err
	}
	n.started = append(n.started, cmd)
	return nil
}

func waitForServer(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			return nc.Close()
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for server on %s: %w", addr, err)
		}
	}
}

// generator is a running load generator and the window that it announced.
type generator struct {
	cmd     *exec.Cmd
	results *json.Decoder
	window  load.Started
}

// grace is how long the client waits for the last answers.
const grace = 10 * time.Second

// begin runs this program again as the load generator, on its own CPU, and
// returns when its window is known.
func (s *server) begin(ctx context.Context, step bench.Step) (window, error) {
	n := s.node
	sw, err := n.software()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(load.Spec{
		Addr: cmp.Or(s.addr, sw.addr), Protocol: sw.protocol, Targets: sw.targets, Load: n.spec.Scenario.Load, Rate: step.Rate,
		Seed:  n.spec.seedAt(step),
		Grace: grace, Watch: schedFiles,
	})
	if err != nil {
		return nil, fmt.Errorf("encode load: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "load")
	// One thread that is never interrupted by its own runtime.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	cmd.Stdin = strings.NewReader(string(spec))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start client: %w", err)
	}
	if err := n.tree.start(cmd, client); err != nil {
		return nil, err
	}
	g := &generator{cmd: cmd, results: json.NewDecoder(out)}
	if err := g.results.Decode(&g.window); err != nil {
		return nil, fmt.Errorf("start client: %w", errors.Join(err, cmd.Wait()))
	}
	return g, nil
}

func (g *generator) span() (from, to time.Duration) { return g.window.From, g.window.To }

// end returns what the client saw.
func (g *generator) end() (bench.Result, []bench.SchedSample, error) {
	var result load.Result
	if err := g.results.Decode(&result); err != nil {
		return bench.Result{}, nil, fmt.Errorf("read client's result: %w", errors.Join(err, g.cmd.Wait()))
	}
	if err := g.cmd.Wait(); err != nil {
		return bench.Result{}, nil, fmt.Errorf("end client: %w", err)
	}
	var looks []bench.SchedSample
	for _, look := range result.Looks {
		looks = append(looks, schedSample(look.At, look.Values))
	}
	return result.Primary, looks, nil
}
