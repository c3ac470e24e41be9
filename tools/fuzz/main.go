// SPDX-License-Identifier: Apache-2.0

// Command fuzz runs every fuzz test of the repository, each for a while and with
// one worker, some at the same time, and stops at the first that fails. A worker
// that gets no CPU for 10 s counts as hung, so leave it the machine.
//
//	fuzz -time 10s -jobs 2 -only 'FuzzParse'
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
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	each := flag.Duration("time", 10*time.Second, "how long to run each fuzz test")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many fuzz tests to run at the same time")
	only := flag.String("only", "", "regular expression of the fuzz tests to run; all without it")
	flag.Parse()
	if *jobs < 1 {
		fmt.Fprintln(os.Stderr, "fuzz: -jobs must be 1 or more")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := runAll(ctx, *only, *each, *jobs, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is a fuzz test.
type target struct{ pkg, name string }

func runAll(ctx context.Context, only string, each time.Duration, jobs int, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-list", "^Fuzz", "./...")
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list fuzz tests: %w", err)
	}
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	targets := slices.DeleteFunc(parseList(list), func(t target) bool { return !chosen.MatchString(t.name) })
	if len(targets) == 0 {
		return fmt.Errorf("-only %s: no fuzz test has such a name", only)
	}
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(jobs)
	for _, t := range targets {
		group.Go(func() error {
			execs, err := t.run(ctx, each)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%d/%d %s %s: %s inputs\n", done.Add(1), len(targets), t.pkg, t.name, execs)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
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

// run returns how many inputs were tried, as go test wrote it. By default, making
// an input smaller may take a minute of the time.
func (t target) run(ctx context.Context, each time.Duration) (execs string, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(),
		"-fuzzminimizetime", "1s", "-parallel", "1", t.pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w\n%s", t.name, t.pkg, err, text)
	}
	return tried(text)
}

// progress is what go test prints every few seconds.
var progress = regexp.MustCompile(`(?m)^fuzz: elapsed: \S+, execs: (\d+) `)

func tried(text []byte) (execs string, err error) {
	all := progress.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		return "", fmt.Errorf("go test tried no input:\n%s", text)
	}
	return string(all[len(all)-1][1]), nil
}
