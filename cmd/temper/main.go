// SPDX-License-Identifier: Apache-2.0

// Temper runs the scheduler on one node, without Kubernetes: it attaches it with
// a plan from a file, says what it does, and takes it off again. Called as
// kubectl-temper it is kubectl's plugin, for the nodes of a cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/cmd/temper/plugin"
)

func main() {
	ctx := stopContext(context.Background())
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == plugin.Name {
		os.Exit(plugin.Execute(ctx, pluginOptions(), os.Args[1:]))
	}
	os.Exit(execute(ctx, liveNode(), os.Args[1:]))
}

func pluginOptions() plugin.Options {
	info, _ := debug.ReadBuildInfo()
	return plugin.Options{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: version(info), Poll: time.Second,
	}
}

// stopContext ends with the first signal that asks to stop; a second one kills.
// A terminal that closes asks for it, too, unless nohup has it ignored.
func stopContext(ctx context.Context) context.Context {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}
