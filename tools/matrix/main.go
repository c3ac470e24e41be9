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
	"runtime"
	"strings"
	"sync"
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
			fmt.Printf("%-16s %s\n", m.name, strings.Join(m.goTest("inguest"), " "))
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
	total := newTally()
	begin := time.Now()
	var chosen []machine
	for _, m := range machines() {
		if len(m.packages) == 0 {
			m.packages = host
		}
		if match.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	var failed []string
	for _, group := range together(chosen) {
		failed = append(failed, runGroup(ctx, group, inguest, total, out)...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(out, "%d tests ran on %d machines in %v\n", total.count(), len(chosen), time.Since(begin).Round(time.Second))
	if len(failed) > 0 {
		return fmt.Errorf("failed on %s; failed tests: %q", strings.Join(failed, ", "), total.failed)
	}
	if nowhere := total.ranNowhere(); len(chosen) == len(machines()) && len(nowhere) > 0 {
		return fmt.Errorf("skipped on every machine: %s", strings.Join(nowhere, ", "))
	}
	return nil
}

// together groups the machines that run at the same time: neighbours in virtual
// time, each of which takes one CPU and does not notice the others.
func together(list []machine) (groups [][]machine) {
	for i, m := range list {
		if i > 0 && m.virtual && list[i-1].virtual {
			groups[len(groups)-1] = append(groups[len(groups)-1], m)
		} else {
			groups = append(groups, []machine{m})
		}
	}
	return groups
}

// runGroup returns the names of the machines that failed. Of several at once
// each is shown when it ends.
func runGroup(ctx context.Context, group []machine, inguest string, total *tally, out io.Writer) (failed []string) {
	if len(group) == 1 {
		ok := group[0].show(ctx, inguest, total, out)
		if !ok {
			failed = append(failed, group[0].name)
		}
		return failed
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for _, m := range group {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			own := newTally()
			var shown strings.Builder
			ok := m.show(ctx, inguest, own, &shown)
			mu.Lock()
			defer mu.Unlock()
			total.add(own)
			fmt.Fprint(out, shown.String())
			if !ok {
				failed = append(failed, m.name)
			}
		})
	}
	wg.Wait()
	return failed
}

// show runs the machine's tests with its name and time around what they say.
func (m machine) show(ctx context.Context, inguest string, total *tally, out io.Writer) bool {
	fmt.Fprintf(out, "=== %s\n", m.name)
	started := time.Now()
	err := m.run(ctx, inguest, total, out)
	if err != nil {
		fmt.Fprintf(out, "--- %s: %v\n", m.name, err)
	}
	fmt.Fprintf(out, "=== %s: %v\n\n", m.name, time.Since(started).Round(time.Second))
	return err == nil
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

// buildControlPlane returns where the programs of a control plane are: in the
// cache, after some minutes the first time.
func buildControlPlane(ctx context.Context, out io.Writer) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./tools/kube", "etcd", "kube-apiserver")
	cmd.Stderr = out
	dir, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build control plane: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// run runs the machine's tests, counts them in total and shows what matters.
func (m machine) run(ctx context.Context, inguest string, total *tally, out io.Writer) error {
	args := m.goTest(inguest)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = append(os.Environ(), m.env()...)
	if m.kube {
		bin, err := buildControlPlane(ctx, out)
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, "TEMPER_KUBE_BIN="+bin)
	}
	cmd.Stderr = out
	events, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
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
