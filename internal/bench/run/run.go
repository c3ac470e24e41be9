// SPDX-License-Identifier: Apache-2.0

// Package run carries out a scenario under several arms, each on a guest of
// its own booted from the same kernel, and writes a record per window.
package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/guest"
)

// Campaign is what to run and where its records go.
type Campaign struct {
	Scenario bench.Scenario
	Arms     []bench.Arm
	Seed     uint64
	Kernel   string // a name of package guest
	Topology string
	Clock    guest.ClockFunc
	// Node is the static binary that drives the node from inside; Temper that
	// of the command line, for the arms that need it.
	Node, Temper string
	// Dir receives the record file.
	Dir string
	// Jobs is how many guests run at once. It changes no figure: time in the
	// guests is virtual.
	Jobs   int
	Commit string
	Log    *slog.Logger
	// Progress, if set, hears of everything that happens, one call at a time.
	Progress func(Update)
}

// Update is one thing that happened. Record is nil for mere progress.
type Update struct {
	Arm    string
	Text   string
	Record *bench.Record
}

// Run carries the campaign out and returns its records, by arm and density.
// An arm that fails does not stop the others: their records are kept, and the
// errors are returned beside them.
func (c *Campaign) Run(ctx context.Context) ([]bench.Record, error) {
	if err := c.Scenario.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create record directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(c.Dir, bench.RecordFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open record file: %w", err)
	}
	sink := &sink{file: file, progress: c.Progress}
	errs := make([]error, len(c.Arms))
	slots := make(chan struct{}, max(c.Jobs, 1))
	var group sync.WaitGroup
	for order, arm := range c.Arms {
		slots <- struct{}{}
		group.Go(func() {
			if err := c.runArm(ctx, arm, order, sink); err != nil {
				errs[order] = fmt.Errorf("run arm %s: %w", arm.Name, err)
			}
			<-slots
		})
	}
	group.Wait()
	return sink.sorted(), errors.Join(append(errs, file.Close())...)
}

// sink receives the records and the news of all arms.
type sink struct {
	mu       sync.Mutex
	file     io.Writer
	records  []bench.Record
	progress func(Update)
}

func (s *sink) tell(u Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress != nil {
		s.progress(u)
	}
}

func (s *sink) keep(r *bench.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, *r)
	return bench.WriteRecord(s.file, r)
}

func (s *sink) sorted() []bench.Record {
	slices.SortStableFunc(s.records, func(a, b bench.Record) int {
		if a.Order != b.Order {
			return a.Order - b.Order
		}
		return a.Window.Step.Index - b.Window.Step.Index
	})
	return s.records
}

// Where the programs lie in the guest.
const (
	nodePath   = "/opt/temper-lab-node"
	temperPath = "/opt/temper"
)

// guestBound is how much real time one guest may take: some ten times what a
// ladder takes on a slow host.
const guestBound = 30 * time.Minute

// runArm boots one guest and turns what it tells into records.
func (c *Campaign) runArm(ctx context.Context, arm bench.Arm, order int, sink *sink) error {
	ctx, stop := context.WithTimeout(ctx, guestBound)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd, err := c.command(arm)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, in := io.Pipe()
	cmd.Stdout = in
	r := &armRun{campaign: c, arm: arm, order: order, sink: sink, started: time.Now(), cmd: cmd}
	sink.tell(Update{Arm: arm.Name, Text: "booting a guest"})
	heard := make(chan error, 1)
	go func() {
		err := r.listen(out)
		cancel(err) // a guest that nobody listens to is of no use
		_ = out.CloseWithError(err)
		heard <- err
	}()
	err = cmd.Run(ctx)
	_ = in.Close() // closing this end of a pipe cannot fail
	if bad := <-heard; bad != nil {
		err = bad
	} else if err == nil && len(r.held) != len(c.Scenario.Steps()) {
		err = fmt.Errorf("guest ended after %d of %d windows", len(r.held), len(c.Scenario.Steps()))
	}
	if err != nil {
		err = fmt.Errorf("%w%s", err, tail(stderr.String()))
	}
	// What a run measured before it failed was measured all the same.
	return errors.Join(err, r.flush())
}

// tail shows the end of what the guest's programs complained about.
func tail(stderr string) string {
	stderr = strings.TrimSpace(stderr)
	if stderr == "" {
		return ""
	}
	return "; the guest said: " + stderr[max(0, len(stderr)-2000):]
}

// command describes the guest of one arm. All arms share kernel, memory and
// topology; only the arm's own words on the kernel's command line differ.
func (c *Campaign) command(arm bench.Arm) (*guest.Cmd, error) {
	topology, err := guest.ParseTopology(c.Topology)
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(node.Spec{
		Scenario: c.Scenario, Arm: arm, Seed: c.Seed, CPUs: topology.CPUs(), Temper: temperPath,
	})
	if err != nil {
		return nil, fmt.Errorf("encode run: %w", err)
	}
	files := map[string]string{nodePath: c.Node}
	if arm.Ops != "" {
		files[temperPath] = c.Temper
	}
	cmd := guest.Command(guest.Machine{
		Kernel: c.Kernel, Topology: c.Topology, Mode: guest.Deterministic, Append: arm.Cmdline, Seed: int(c.Seed),
		Packages: c.Scenario.KindOf().Packages, Files: files, Clock: c.Clock,
	}, nodePath, "run")
	cmd.Stdin = bytes.NewReader(spec)
	cmd.Log = c.Log
	return cmd, nil
}

// armRun is one guest's run in progress.
type armRun struct {
	campaign *Campaign
	arm      bench.Arm
	order    int
	sink     *sink
	started  time.Time
	cmd      *guest.Cmd
	hello    node.Hello
	held     []bench.Record // complete but for the guest's provenance
}

// listen reads events until the guest ends.
func (r *armRun) listen(out io.Reader) error {
	for events := json.NewDecoder(out); ; {
		var e node.Event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		if err := r.hear(e); err != nil {
			return err
		}
	}
}
