// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/guest"
)

// shownWaits is how many waits are shown in full.
const shownWaits = 3

// Look is what a traced run needs: the clock that looks, and a file that says at what.
type Look struct{ plugin, points string }

// Prepare asks the kernel of the run where its functions are. What fails does so here,
// before anything is run.
func Prepare(ctx context.Context, kernel, file string, log *slog.Logger) (Look, error) {
	out, err := filepath.Abs(file)
	if err != nil {
		return Look{}, fmt.Errorf("find trace file: %w", err)
	}
	if strings.Contains(out, "\n") {
		return Look{}, fmt.Errorf("trace file %q: its path must be one line", out)
	}
	if err := os.WriteFile(out, nil, 0o644); err != nil {
		return Look{}, fmt.Errorf("write trace: %w", err)
	}
	qemu, version, err := guest.QEMU(ctx)
	if err != nil {
		return Look{}, err
	}
	plugin, err := clock.Tracer(ctx, qemu, version)
	if err != nil {
		return Look{}, err
	}
	points, err := FindPoints(ctx, kernel, log)
	if err != nil {
		return Look{}, err
	}
	f, err := os.CreateTemp("", "temper-points-")
	if err != nil {
		return Look{}, fmt.Errorf("write points: %w", err)
	}
	l := Look{plugin, f.Name()}
	f.Close()
	if err := points.Write(l.points, out); err != nil {
		l.Remove()
		return Look{}, err
	}
	return l, nil
}

// Clock is the clock that traces.
func (l Look) Clock(context.Context, string, string) (string, error) {
	return l.plugin + ",trace=" + l.points, nil
}

// Remove removes what only the run needs.
func (l Look) Remove() { os.Remove(l.points) }

// ShowLongest writes the longest waits in a trace's file: of each thread name, or those of one.
func ShowLongest(out io.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open trace: %w", err)
	}
	defer f.Close()
	events, err := Read(f)
	if err != nil {
		return err
	}
	waits := Waits(events)
	if name == "" {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "THREAD\tLONGEST WAIT\tAT\tON CPU")
		for _, w := range ByName(waits) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", w.Thread.Name, w.For(), w.From, w.CPU)
		}
		return t.Flush()
	}
	longest := Longest(waits, name, shownWaits)
	if len(longest) == 0 {
		return fmt.Errorf("no thread %q waited in %s: without --waits all names are listed", name, path)
	}
	for _, w := range longest {
		fmt.Fprintln(out)
		Show(out, w, events)
	}
	return nil
}
