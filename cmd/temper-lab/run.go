// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/run"
	"github.com/temper-sched/temper/internal/guest"
)

// choice is what of a scenario is to be run. Zero fields mean the scenario's own.
type choice struct {
	Scenario  string          `yaml:"scenario"`
	Topology  string          `yaml:"topology"`
	Kernel    string          `yaml:"kernel"`
	Arms      []string        `yaml:"arms"`
	Seeds     int             `yaml:"seeds"`
	SeedFirst uint64          `yaml:"seed_first"`
	Densities bench.Densities `yaml:"densities"`
	Points    []string        `yaml:"points"`
	Window    time.Duration   `yaml:"window"`
}

// runner is the run command's flags.
type runner struct {
	choice   choice
	programs programs
	out, on  string
	jobs     int
	dry      bool
}

func newRun() *cobra.Command {
	r := runner{}
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario under several arms and seeds, and keep a record of every window",
		Long: `Run boots one guest for each arm and seed, in virtual time, takes the scenario's
ladder on it and appends a record for every window to OUT/` + bench.RecordFile + `. The arms'
order changes with the seed.

An interrupted run keeps the windows that were measured: the same command goes on
where it ended. A guest that could not end, as when this program was killed, is
measured again, as is a run that failed. With --dry-run it only looks at the command
line, the programs and what is on record, and says what is left to do.

Arms: a base, then modifiers, each after a colon, as in temper:landing:again.
` + armsHelp() + `
--on host measures this machine itself, in real time, below a cgroup of its own;
it needs root, cgroup v2 and, for sched_ext arms, sched_ext. --on kvm measures
guests in real time. Records in real time never share a table with virtual ones.

` + exitCodes,
		Example: `  temper-lab run memcached-ladder
  temper-lab run memcached-ladder --arms eevdf-tuned,temper --seeds 2 --density 0,4 --points 30% --dry-run
  temper-lab run wakeup --topology 1s2c2t --out out/wakeup-smt
  temper-lab run burst --arms temper,exec:/usr/bin/scx_layered --exec-args f:{config} --exec-config layers.json
  sudo temper-lab run memcached-ladder --on host --arms eevdf,temper`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.choice.Scenario = args[0]
			return r.run(cmd)
		},
	}
	f := cmd.Flags()
	c := &r.choice
	f.StringVar(&r.out, "out", "", "`directory` for the records (default out/SCENARIO)")
	f.StringSliceVar(&c.Arms, "arms", nil, "arms to run (default: the scenario's)")
	f.IntVar(&c.Seeds, "seeds", 0, "number of seeds (default: the scenario's)")
	f.Uint64Var(&c.SeedFirst, "seed-first", 1, "the first seed")
	f.IntSliceVar((*[]int)(&c.Densities), "density", nil, "ladder of background pods (default: the scenario's)")
	f.StringSliceVar(&c.Points, "points", nil, "operating points, by name (default: all)")
	f.DurationVar(&c.Window, "window", 0, "measured time per step (default: the scenario's)")
	f.StringVar(&c.Topology, "topology", "", "sockets, cores and threads of the guests, as in 2s2c1t (default: the scenario's)")
	f.StringVar(&c.Kernel, "kernel", "", "kernel of the guests, see temper-lab kernels (default "+guest.DefaultKernel+")")
	f.StringVar(&r.on, "on", string(run.OnGuest), "where: guest, kvm or host")
	f.IntVar(&r.jobs, "jobs", runtime.NumCPU(), "guests at once; changes no figure, time is virtual")
	f.BoolVar(&r.dry, "dry-run", false, "only list what would be run")
	r.programs.flags(f)
	r.programs.execFlags(f)
	return cmd
}

func (r *runner) run(cmd *cobra.Command) error {
	c, err := r.choice.campaign(run.Place(r.on))
	if err != nil {
		return usageError{err}
	}
	if c.Place == run.OnHost {
		if r.choice.Kernel != "" || r.choice.Topology != "" {
			return usageError{errors.New("--kernel and --topology are the guests'; --on host has those of this machine")}
		}
		if err := run.CheckHost(c.Scenario, c.Arms); err != nil {
			return err
		}
	}
	if c.Place == run.OnKVM && !r.dry && !guest.KVM(cmd.Context(), guest.ProgressLog(cmd.ErrOrStderr())) {
		return errors.New("--on kvm: KVM does not work here: /dev/kvm is missing, or a guest does not boot with it; --on guest needs none")
	}
	if err := r.programs.find(c.Arms, c.Scenario); err != nil {
		return err
	}
	c.Dir = r.out
	if c.Dir == "" {
		c.Dir = filepath.Join("out", c.Scenario.Name)
	}
	campaigns := []*run.Campaign{c}
	todo, err := look(cmd.ErrOrStderr(), &r.programs, r.jobs, campaigns)
	if err != nil {
		return err
	}
	if r.dry {
		return outline(cmd.OutOrStdout(), campaigns, todo)
	}
	return carryOut(cmd.Context(), cmd.OutOrStdout(), campaigns, todo)
}

// campaign makes one of what was chosen.
func (c choice) campaign(on run.Place) (*run.Campaign, error) {
	if !slices.Contains([]run.Place{run.OnGuest, run.OnKVM, run.OnHost}, on) {
		return nil, fmt.Errorf("--on %s: one of guest, kvm, host", on)
	}
	s, err := scenarios.Find(c.Scenario)
	if err != nil {
		return nil, err
	}
	switch {
	case nothing(c.Arms):
		return nil, errors.New("arms: empty")
	case nothing(c.Points):
		return nil, errors.New("points: empty")
	case nothing(c.Densities):
		return nil, errors.New("densities: empty")
	}
	if len(c.Arms) == 0 {
		c.Arms = s.Arms
	}
	if c.Seeds == 0 {
		c.Seeds = s.Seeds
	}
	if len(c.Densities) > 0 {
		s.Densities = c.Densities
	}
	if c.Window != 0 {
		s.Load.Window = c.Window
	}
	if err := pick(&s, c.Points); err != nil {
		return nil, err
	}
	arms, err := bench.ParseArms(c.Arms)
	if err != nil {
		return nil, err
	}
	if c.Topology != "" {
		s.Topology = c.Topology
	}
	if on == run.OnHost {
		if s.Topology, err = run.HostTopology(); err != nil {
			return nil, err
		}
	} else if _, err := guest.ParseTopology(s.Topology); err != nil {
		return nil, err
	}
	c.Kernel = orDefault(c.Kernel, guest.DefaultKernel)
	if err := knownKernel(c.Kernel); err != nil {
		return nil, err
	}
	if c.Seeds < 1 || c.Seeds > bench.MaxSeeds {
		return nil, fmt.Errorf("%d seeds, want 1 to %d", c.Seeds, bench.MaxSeeds)
	}
	if most := uint64(math.MaxUint64 - bench.MaxSeeds); c.SeedFirst > most {
		return nil, fmt.Errorf("first seed %d, want at most %d", c.SeedFirst, most)
	}
	if err := valid(s); err != nil {
		return nil, err
	}
	return &run.Campaign{
		Scenario: s, Arms: arms, SeedFirst: max(c.SeedFirst, 1), Seeds: c.Seeds, Place: on, Topology: s.Topology,
		Kernel: c.Kernel, Clock: clock.Plugin,
	}, nil
}

// longestWindow is far beyond any figure's need, and far below what would overflow the
// time that a guest may take.
const longestWindow = time.Hour

// valid is s.Validate, for a scenario whose window a flag or a list may have set.
func valid(s bench.Scenario) error {
	if s.Load.Window > longestWindow {
		return fmt.Errorf("load.window: %s, want at most %s", s.Load.Window, longestWindow)
	}
	return s.Validate()
}

// nothing is a list that was given and is empty. Left out it is nil: the scenario's own.
func nothing[T any](list []T) bool { return list != nil && len(list) == 0 }

// knownKernel refuses a name that no guest would boot.
func knownKernel(name string) error {
	if !slices.Contains(guest.Kernels(), name) {
		return fmt.Errorf("kernel %q: one of %s", name, strings.Join(guest.Kernels(), ", "))
	}
	return nil
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// pick leaves only the points called names in s, and the pods that are there
// at any of them.
func pick(s *bench.Scenario, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var known []string
	for _, p := range s.Points {
		known = append(known, p.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown operating point %q: one of %s", name, strings.Join(known, ", "))
		}
	}
	s.Points = slices.DeleteFunc(s.Points, func(p bench.Point) bool { return !slices.Contains(names, p.Name) })
	s.Primary.Pods = slices.DeleteFunc(s.Primary.Pods, func(p bench.PodSpec) bool {
		return p.Point != "" && !slices.Contains(names, p.Point)
	})
	return nil
}

// look completes campaigns with what they are run by, and finds out what is left of
// them beside what is on record.
func look(errOut io.Writer, p *programs, jobs int, campaigns []*run.Campaign) (run.Todo, error) {
	var todo run.Todo
	for _, c := range campaigns {
		c.Node, c.Temper, c.Agent, c.Commit, c.Jobs, c.Log = p.node, p.temper, p.agent, p.commit, jobs, guest.ProgressLog(errOut)
		t, err := c.Todo()
		if err != nil {
			return todo, err
		}
		todo.Runs, todo.Windows = todo.Runs+t.Runs, todo.Windows+t.Windows
		todo.HaveRuns, todo.HaveWin, todo.HaveVoid = todo.HaveRuns+t.HaveRuns, todo.HaveWin+t.HaveWin, todo.HaveVoid+t.HaveVoid
	}
	return todo, nil
}

// toDo says what is left of a campaign.
const toDo = "to do: %d windows in %d runs; %d windows are recorded already"

// carryOut runs campaigns one after the other and says what came of them.
func carryOut(ctx context.Context, out io.Writer, campaigns []*run.Campaign, todo run.Todo) error {
	show := newProgress(out, todo)
	show.line(toDo, todo.Windows, todo.Runs, todo.HaveWin)
	var errs []error
	for _, c := range campaigns {
		c.Progress = show.update
		if err := c.Run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Dir, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	show.line("%d windows in %s, %d of them void, %d runs failed", show.windows, short(time.Since(show.begin)), show.void, show.failed)
	for _, c := range campaigns {
		if path := filepath.Join(c.Dir, bench.RecordFile); exists(path) {
			show.line("  %s", path)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if void := show.void + todo.HaveVoid; void > 0 {
		return fmt.Errorf("%w: %d of %d", errVoid, void, show.windows+todo.HaveWin)
	}
	return nil
}

// exists is true for what cannot be looked at, too: whoever opens it says why.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func armsHelp() string {
	var b strings.Builder
	for _, a := range bench.Arms() {
		fmt.Fprintf(&b, "  %-13s %s\n", a.Name, a.Title)
	}
	fmt.Fprintf(&b, "  %-13s %s\n", "exec:PATH", "a sched_ext scheduler's program that you bring")
	for _, m := range bench.Modifiers() {
		base := ""
		if m.Base != "" {
			base = ", of " + m.Base
		}
		fmt.Fprintf(&b, "  %-13s %s%s\n", ":"+m.Name, m.Title, base)
	}
	return b.String()
}
