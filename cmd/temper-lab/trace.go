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
	"github.com/temper-sched/temper/internal/guest"
)

// shownWaits is how many waits are shown in full.
const shownWaits = 3

// look is what a traced run needs: the clock that looks, and a file that says at what.
type look struct{ plugin, points string }

// prepareTrace asks the run's kernel where its functions are. What fails does so here,
// before anything is run.
func prepareTrace(ctx context.Context, kernel, file string, log *slog.Logger) (look, error) {
	out, err := filepath.Abs(file)
	if err != nil {
		return look{}, fmt.Errorf("find trace file: %w", err)
	}
	if strings.Contains(out, "\n") {
		return look{}, fmt.Errorf("trace file %q: its path must be one line", out)
	}
	if err := os.WriteFile(out, nil, 0o644); err != nil {
		return look{}, fmt.Errorf("write trace: %w", err)
	}
	qemu, version, err := guest.QEMU(ctx)
	if err != nil {
		return look{}, err
	}
	plugin, err := clock.Tracer(ctx, qemu, version)
	if err != nil {
		return look{}, err
	}
	points, err := trace.FindPoints(ctx, kernel, log)
	if err != nil {
		return look{}, err
	}
	f, err := os.CreateTemp("", "temper-points-")
	if err != nil {
		return look{}, fmt.Errorf("write points: %w", err)
	}
	l := look{plugin, f.Name()}
	f.Close()
	if err := points.Write(l.points, out); err != nil {
		l.remove()
		return look{}, err
	}
	return l, nil
}

// clock is the clock that traces.
func (l look) clock(context.Context, string, string) (string, error) {
	return l.plugin + ",trace=" + l.points, nil
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
