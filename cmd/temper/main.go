// SPDX-License-Identifier: Apache-2.0

// Temper runs the scheduler on one node, without Kubernetes: it attaches it with
// a plan from a file, says what it does, and takes it off again.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx := stopContext(context.Background())
	os.Exit(execute(ctx, liveNode(), os.Args[1:]))
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
