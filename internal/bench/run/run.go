// SPDX-License-Identifier: Apache-2.0

// Package run carries out a scenario under several arms and seeds, each run on
// a guest of its own booted from the same kernel, and keeps a record of every
// window. A campaign that was interrupted goes on where it ended.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/guest"
)

// Campaign is what to run and where its records go.
type Campaign struct {
	Scenario  bench.Scenario
	Arms      []bench.Arm
	SeedFirst uint64
	Seeds     int
	Place     Place
	Kernel    string // a name of package guest
	Topology  string
	// Topologies are those that the directory is to hold, where there are several.
	Topologies []string
	Clock      guest.ClockFunc
	// Tracer, where it is set, is the clock of runs that are done again: it must
	// be the same one, that also looks at what happens.
	Tracer guest.ClockFunc
	// Node is the static binary that drives the node from inside; Temper that
	// of the command line, for the arms that need it; Agent the node agent, for
	// the scenarios that need it.
	Node, Temper, Agent string
	// Dir receives the record file. Its name is the campaign's.
	Dir string
	// Jobs is how many guests run at once. It changes no figure: time in the
	// guests is virtual.
	Jobs   int
	Commit string
	Log    *slog.Logger
	// Progress, if set, hears of everything that happens, one call at a time.
	Progress func(Update)
}

// Place is where the node is.
type Place string

// The places.
const (
	OnGuest Place = "guest" // emulated, in virtual time
	OnKVM   Place = "kvm"   // a guest in real time
	OnHost  Place = "host"  // this machine itself
)

// Update is one thing that happened: progress of a run, one of its windows, or
// its end.
type Update struct {
	Arm    string
	Seed   uint64
	Text   string
	Record *bench.Record
	Ended  *Ended
}

// Ended is how a run ended.
type Ended struct {
	Windows int // measured, those of an earlier attempt not counted
	Void    int
	Took    time.Duration
	Err     error
}

// job is one run to be: a guest's.
type job struct {
	arm   bench.Arm
	seed  uint64
	order int
}

// jobs lists the campaign's runs in order. The arms' order changes with the
// seed, so that none is always first.
func (c *Campaign) jobs() []job {
	var out []job
	for i := range c.Seeds {
		for _, arm := range bench.Rotate(c.Arms, i) {
			out = append(out, job{arm: arm, seed: c.SeedFirst + uint64(i), order: len(out)})
		}
	}
	return out
}

// Todo is what is left of a campaign.
type Todo struct {
	Runs, Windows     int
	HaveRuns, HaveWin int // that were there already
	HaveVoid          int // of those windows
}

// Todo looks into the campaign's directory. It makes no guest: whether one would be the
// same as those on record, Run finds out.
func (c *Campaign) Todo() (Todo, error) {
	if err := c.canBring(); err != nil {
		return Todo{}, err
	}
	held, err := readStore(c.Dir)
	if err != nil {
		return Todo{}, err
	}
	if err := writable(held.where); err != nil {
		return Todo{}, err
	}
	builds, err := c.builds()
	if err != nil {
		return Todo{}, err
	}
	var t Todo
	steps := len(c.Scenario.Steps())
	for _, j := range c.jobs() {
		have, err := held.windows(c, j, builds[j.arm.Name])
		if err != nil {
			return Todo{}, err
		}
		t.HaveWin += len(have)
		t.HaveVoid += held.void(c, j)
		if left := steps - len(have); left > 0 {
			t.Runs, t.Windows = t.Runs+1, t.Windows+left
		} else {
			t.HaveRuns++
		}
	}
	if c.Place == OnHost {
		machine, err := c.host()
		if err == nil {
			err = held.matches(c.Scenario.Name, machine)
		}
		if err != nil {
			return Todo{}, err
		}
	}
	return t, nil
}

// canBring says whether guests could run the programs of exec arms. A machine that is
// measured itself runs whatever it can execute.
func (c *Campaign) canBring() error {
	for _, arm := range c.Arms {
		if arm.Exec == nil || c.Place == OnHost {
			continue
		}
		if _, _, err := libraries(arm.Exec.Path); err != nil {
			return fmt.Errorf("arm %s: %w", arm.Name, err)
		}
	}
	return nil
}

// Run carries out what is left of the campaign. A run that fails does not stop
// the others, but if its records cannot be kept: what it measured is kept, and the
// errors are returned together. Running the campaign again tries the failed ones
// again.
func (c *Campaign) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	builds, err := c.builds()
	if err != nil {
		return err
	}
	store, err := openStore(c.Dir)
	if err != nil {
		return err
	}
	if store.torn != "" {
		c.tell(Update{Text: "the last line was cut off by an interruption; moved to " + store.torn})
	}
	jobs := c.jobs()
	var todo []*attempt
	for _, j := range jobs {
		have, err := store.windows(c, j, builds[j.arm.Name])
		if err != nil {
			return errors.Join(err, store.close())
		}
		if len(have) < len(c.Scenario.Steps()) {
			todo = append(todo, &attempt{Campaign: c, job: j, build: builds[j.arm.Name], have: have, keep: store.add})
		}
	}
	if err := c.goesOn(ctx, store, todo); err != nil {
		return errors.Join(err, store.close())
	}
	return errors.Join(c.all(ctx, todo), store.close())
}

// goesOn tells before anything is measured whether it could be kept beside what is
// there.
func (c *Campaign) goesOn(ctx context.Context, s *store, todo []*attempt) error {
	if len(s.held) == 0 || len(todo) == 0 {
		return nil
	}
	machine, err := c.machine(ctx, todo[0].job)
	if err != nil {
		return err
	}
	return s.matches(c.Scenario.Name, machine)
}

// all runs the attempts, Jobs at once, in order, as long as their records are kept.
func (c *Campaign) all(ctx context.Context, todo []*attempt) error {
	errs := make([]error, len(todo))
	slots := make(chan struct{}, c.slots())
	var group sync.WaitGroup
	var lost atomic.Bool
	for i, a := range todo {
		slots <- struct{}{}
		if ctx.Err() != nil || lost.Load() {
			<-slots
			break
		}
		group.Go(func() {
			err := a.run(ctx)
			if err != nil {
				errs[i] = fmt.Errorf("run arm %s with seed %d: %w", a.arm.Name, a.seed, err)
			}
			if errors.Is(err, errNotKept) {
				lost.Store(true)
			}
			<-slots
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		errs = append(errs, fmt.Errorf("run campaign: %w; the same command goes on from here", context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

// slots is how many runs go on at once. In real time they would disturb each
// other.
func (c *Campaign) slots() int {
	if c.Place != OnGuest {
		return 1
	}
	return max(c.Jobs, 1)
}

func (c *Campaign) validate() error {
	if err := c.Scenario.Validate(); err != nil {
		return fmt.Errorf("scenario %s: %w", c.Scenario.Name, err)
	}
	if len(c.Arms) == 0 || c.Seeds < 1 {
		return fmt.Errorf("scenario %s: %d arms and %d seeds, want at least one of each", c.Scenario.Name, len(c.Arms), c.Seeds)
	}
	return nil
}

// plan is what every record says of its campaign.
func (c *Campaign) plan() bench.Plan {
	p := bench.Plan{SeedFirst: c.SeedFirst, Seeds: c.Seeds, Topologies: c.Topologies}
	for _, a := range c.Arms {
		p.Arms = append(p.Arms, a.Name)
	}
	return p
}

// name is the campaign's: its directory's, by whatever path.
func (c *Campaign) name() string {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		dir = c.Dir // no working directory: the path is all there is
	}
	return filepath.Base(dir)
}

var telling sync.Mutex

func (c *Campaign) tell(u Update) {
	telling.Lock()
	defer telling.Unlock()
	if c.Progress != nil {
		c.Progress(u)
	}
}
