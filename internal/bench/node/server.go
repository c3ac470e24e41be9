// SPDX-License-Identifier: Apache-2.0

package node

import (
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
type server struct{ node *node }

// memcached is the server and serverAddr where it listens.
const (
	memcached  = "/usr/bin/memcached"
	serverAddr = "127.0.0.1:11211"
)

// start starts memcached in the critical pod and waits until it answers.
func (s *server) start(ctx context.Context) error {
	n := s.node
	_, port, _ := net.SplitHostPort(serverAddr)
	cmd := exec.CommandContext(ctx, memcached, "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0",
		"-m", "64", "-c", "256", "-t", strconv.Itoa(n.spec.Scenario.Primary.Threads))
	if err := n.tree.start(cmd, critical+"/ctr"); err != nil {
		return err
	}
	n.started = append(n.started, cmd)
	return waitForServer(ctx)
}

func waitForServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		nc, err := net.Dial("tcp", serverAddr)
		if err == nil {
			return nc.Close()
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for memcached on %s: %w", serverAddr, err)
		}
	}
}

// generator is a running load generator and the window that it announced.
type generator struct {
	cmd     *exec.Cmd
	results *json.Decoder
	window  load.Started
}

// begin runs this program again as the load generator, on its own CPU, and
// returns when its window is known.
func (s *server) begin(ctx context.Context, step bench.Step) (window, error) {
	n := s.node
	// The same seed and step give every arm the same requests.
	spec, err := json.Marshal(load.Spec{
		Addr: serverAddr, Seed: n.spec.Seed<<16 + uint64(step.Index), Load: n.spec.Scenario.Load, Rate: step.Rate, Grace: 10 * time.Second, Watch: schedFiles,
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
