// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/temper-sched/temper/internal/bench/chain"
	"github.com/temper-sched/temper/internal/bench/load"
)

// chainKind is the kind of primary whose services have a critical pod each.
const chainKind = "chain"

// chainSoftware is the chain as the load generator sees it: its entrance.
func (n *node) chainSoftware() (software, error) {
	services := chain.Services()
	addr, err := chain.Addr(services[0].Name)
	if err != nil {
		return software{}, err
	}
	sw := software{protocol: load.HTTP, addr: addr, start: n.startChain}
	for _, t := range chain.Mix() {
		sw.targets = append(sw.targets, load.Target{Path: t.Path, Weight: t.Weight})
	}
	return sw, nil
}

// startChain starts every service in a critical pod of its own, all at once:
// each waits for those it calls.
func (n *node) startChain(ctx context.Context) error {
	services := chain.Services()
	ready := make([]func() error, len(services))
	for i, s := range services {
		var err error
		if ready[i], err = n.startService(ctx, s.Name, criticalPod(i)+ctr); err != nil {
			return err
		}
	}
	for i, wait := range ready {
		if err := wait(); err != nil {
			return fmt.Errorf("start service %s: %w", services[i].Name, err)
		}
	}
	return nil
}

// serviceReady is what a service says when it can answer.
const serviceReady = "ready"

// startService starts one service and returns what waits until it is ready.
func (n *node) startService(ctx context.Context, name, cgroup string) (wait func() error, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "service")
	// As in a container with one CPU. The collector has nothing to do there:
	// see package chain.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("%q", name))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start service %s: %w", name, err)
	}
	if err := n.tree.start(cmd, cgroup); err != nil {
		return nil, err
	}
	n.started = append(n.started, cmd)
	return func() error {
		line, err := bufio.NewReader(out).ReadString('\n')
		if strings.TrimSpace(line) != serviceReady {
			return errors.Join(fmt.Errorf("it said %q", line), err)
		}
		go io.Copy(io.Discard, out) //nolint:errcheck // ends with the process
		return nil
	}, nil
}

// RunService is one service of the chain as a process of its own.
func RunService(ctx context.Context, name string, out io.Writer) error {
	return chain.Run(ctx, name, func() error {
		_, err := fmt.Fprintln(out, serviceReady)
		return err
	})
}
