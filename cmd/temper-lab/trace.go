// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench/trace"
)

// shownWaits is how many waits are shown in full.
const shownWaits = 3

// look is what a traced run needs: a file that says what to look for.
type look struct{ points string }

// prepareTrace asks the run's kernel where its functions are.
func prepareTrace(ctx context.Context, kernel, file string, log *slog.Logger) (look, error) {
	out, err := filepath.Abs(file)
	if err != nil {
		return look{}, fmt.Errorf("find trace file: %w", err)
	}
	// The emulator's options are separated by commas.
	if strings.ContainsAny(out, ",\n") {
		return look{}, fmt.Errorf("trace file %q: its path must not have a comma", out)
	}
	points, err := trace.FindPoints(ctx, kernel, log)
	if err != nil {
		return look{}, err
	}
	f, err := os.CreateTemp("", "temper-points-")
	if err != nil {
		return look{}, fmt.Errorf("write points: %w", err)
	}
	l := look{f.Name()}
	f.Close()
	return l, points.Write(l.points, out)
}

// clock is the clock that traces.
func (l look) clock(ctx context.Context, qemu, version string) (string, error) {
	plugin, err := clock.Tracer(ctx, qemu, version)
	return plugin + ",trace=" + l.points, err
}

func (l look) remove() { os.Remove(l.points) }

// showWaits tells the longest waits in a trace: of each thread name, and of one.
func showWaits(out io.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open trace: %w", err)
	}
	defer f.Close()
	events, err := trace.Read(bufio.NewReader(f))
	if err != nil {
		return err
	}
	waits := trace.Waits(events)
	if name == "" {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "THREAD\tLONGEST WAIT\tAT\tON CPU")
		for _, w := range trace.ByName(waits) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", w.Thread.Name, w.For(), w.From, w.CPU)
		}
		return t.Flush()
	}
	longest := trace.Longest(waits, name, shownWaits)
	if len(longest) == 0 {
		return fmt.Errorf("no thread %q waited in %s: without --waits all names are listed", name, path)
	}
	for _, w := range longest {
		fmt.Fprintln(out)
		trace.Show(out, w, events)
	}
	return nil
}
