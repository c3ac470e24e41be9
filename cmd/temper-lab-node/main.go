// SPDX-License-Identifier: Apache-2.0

// Temper-lab-node is the half of the laboratory that runs on the measured node,
// usually inside a guest. People have no use for it: temper-lab starts it, and
// each of its commands reads one JSON document and writes others.
//
// It is a program of its own because a guest in virtual time depends on every
// byte it is given: a change to how reports look must not change what is
// measured.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/temper-sched/temper/internal/bench/load"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/bench/work"
)

// commands are the parts that run as processes of their own.
var commands = map[string]func(ctx context.Context, in io.Reader, out io.Writer) error{
	"run":      runLadder,
	"standing": measureStanding,
	"load":     driveLoad,
	"work":     work.Run,
	"service":  runService,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "temper-lab-node: %s\n", err)
		os.Exit(1)
	}
}

func execute(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	known := strings.Join(slices.Sorted(maps.Keys(commands)), ", ")
	if len(args) != 1 {
		return fmt.Errorf("want one command of %s; temper-lab starts this program", known)
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q: one of %s; temper-lab starts this program", args[0], known)
	}
	return command(ctx, in, out)
}

// runLadder runs a scenario's ladder on this node.
func runLadder(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec node.Spec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	return node.Run(ctx, spec, out)
}

// measureStanding measures one step on a node that is a cluster's.
func measureStanding(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec node.Standing
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return fmt.Errorf("read step: %w", err)
	}
	return spec.Measure(ctx, out)
}

// driveLoad drives a server from this process.
func driveLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec load.Spec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return fmt.Errorf("read load: %w", err)
	}
	enc := json.NewEncoder(out)
	result, err := load.Run(ctx, spec, func(s load.Started) error { return enc.Encode(s) })
	if err != nil {
		return err
	}
	return enc.Encode(result)
}

// runService is one service of the chain.
func runService(ctx context.Context, in io.Reader, out io.Writer) error {
	var name string
	if err := json.NewDecoder(in).Decode(&name); err != nil {
		return fmt.Errorf("read service: %w", err)
	}
	return node.RunService(ctx, name, out)
}
