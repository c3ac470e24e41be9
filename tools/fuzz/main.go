// SPDX-License-Identifier: Apache-2.0

// Command fuzz runs every fuzz test of the repository, one after the other, each
// for a while, and stops at the first that fails.
//
//	fuzz -time 10s
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	each := flag.Duration("time", 10*time.Second, "how long to run each fuzz test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := runAll(ctx, *each, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is a fuzz test.
type target struct{ pkg, name string }

func runAll(ctx context.Context, each time.Duration, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-list", "^Fuzz", "./...")
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list fuzz tests: %w", err)
	}
	targets := parseList(list)
	for i, t := range targets {
		fmt.Fprintf(out, "%d/%d %s %s\n", i+1, len(targets), t.pkg, t.name)
		if err := t.run(ctx, each); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d fuzz tests found nothing in %v each\n", len(targets), each)
	return nil
}

// parseList reads what go test -list prints: a package's tests, then the package.
func parseList(list []byte) (targets []target) {
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		line := lines.Text()
		if pkg := strings.Fields(line); len(pkg) > 1 && pkg[0] == "ok" {
			for _, name := range names {
				targets = append(targets, target{pkg[1], name})
			}
			names = nil
		} else if strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
		}
	}
	return targets
}

// run says nothing unless something is found.
func (t target) run(ctx context.Context, each time.Duration) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(), t.pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s of %s: %w\n%s", t.name, t.pkg, err, text)
	}
	return nil
}
