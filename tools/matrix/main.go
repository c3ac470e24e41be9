// SPDX-License-Identifier: Apache-2.0

// Command matrix runs the tests on every machine they are for: this one, and
// guests with other kernels and topologies. A test may skip where it cannot run,
// but one that ran nowhere fails the matrix.
//
//	matrix                 everything
//	matrix -list           the machines
//	matrix -only 'smt|6\.' the machines whose name matches
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "run the machines whose name matches this `regexp`")
	list := flag.Bool("list", false, "list the machines and exit")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix: -only:", err)
		os.Exit(2)
	}
	if *list {
		for _, m := range machines() {
			fmt.Printf("%-14s %s\n", m.name, strings.Join(m.goTest("inguest"), " "))
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = runAll(ctx, match, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func runAll(ctx context.Context, match *regexp.Regexp, out io.Writer) error {
	inguest, err := buildInguest(ctx)
	if err != nil {
		return err
	}
	host, err := hostPackages(ctx)
	if err != nil {
		return err
	}
	var failed []string
	complete := true
	total := newTally()
	begin := time.Now()
	for _, m := range machines() {
		if !match.MatchString(m.name) {
			complete = false
			continue
		}
		if len(m.packages) == 0 {
			m.packages = host
		}
		fmt.Fprintf(out, "=== %s\n", m.name)
		started := time.Now()
		if err := m.run(ctx, inguest, total, out); err != nil {
			failed = append(failed, m.name)
			fmt.Fprintf(out, "--- %s: %v\n", m.name, err)
		}
		fmt.Fprintf(out, "=== %s: %v\n\n", m.name, time.Since(started).Round(time.Second))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(out, "%d tests ran on %d machines in %v\n", total.count(), total.machines, time.Since(begin).Round(time.Second))
	if len(failed) > 0 {
		return fmt.Errorf("failed on %s", strings.Join(failed, ", "))
	}
	if nowhere := total.ranNowhere(); complete && len(nowhere) > 0 {
		return fmt.Errorf("skipped on every machine: %s", strings.Join(nowhere, ", "))
	}
	return nil
}

// buildInguest builds what takes test binaries into guests.
func buildInguest(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	path := filepath.Join(cache, "temper", "bin", "inguest")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./tools/inguest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build inguest: %w\n%s", err, text)
	}
	return path, nil
}

// run runs the machine's tests, counts them in total and shows what matters.
func (m machine) run(ctx context.Context, inguest string, total *tally, out io.Writer) error {
	args := m.goTest(inguest)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = append(os.Environ(), m.env()...)
	cmd.Stderr = out
	events, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	total.machines++
	before := total.ended
	readErr := total.read(events, out, m.kernel != "")
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	if readErr == nil && total.ended == before {
		return errors.New("no test ran")
	}
	return readErr
}
