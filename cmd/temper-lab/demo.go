// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/bench/scenarios"
	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/run"
	"github.com/temper-sched/temper/internal/guest"
)

// demo is the demo command's flags.
type demo struct {
	programs              programs
	out, topology, kernel string
	arms                  []string
	densities             []int
	window                time.Duration
	rate                  float64
	seed                  uint64
	jobs                  int
	limits                bool
}

func newDemo() *cobra.Command {
	d := demo{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show real memcached beside 0 to 16 spinners and PostgreSQL at a limit, under EEVDF and under Temper",
		Long: `Demo boots one guest per arm from the same kernel, in virtual time. In each, real
memcached runs as a critical pod under an open-loop client, and background pods
that only spin are added step by step. Then real PostgreSQL runs as a pod limited
to 1.5 CPUs, under the stock kernel and under Temper. One line per step and arm is
printed as it comes, then the tables; records and a self-contained page go to --out.

Arms:
` + armsHelp() + `
Everything a guest needs (QEMU, kernel, servers) is fetched from Debian once
and kept below the user's cache directory.

` + exitCodes,
		Example: `  temper-lab demo
  temper-lab demo --arms eevdf,temper --densities 0,4 --window 500ms
  temper-lab demo --seed 7 --out out/seed7`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&d.out, "out", "", "`directory` for records and page (default out/demo-<time>)")
	f.StringSliceVar(&d.arms, "arms", []string{"eevdf", "eevdf-tuned", "temper"}, "arms to run, in this order")
	f.IntSliceVar(&d.densities, "densities", []int{0, 1, 2, 4, 8, 16}, "steps of the ladder, in spinners")
	f.DurationVar(&d.window, "window", 2*time.Second, "measured virtual time per step")
	f.Float64Var(&d.rate, "rate", 10_000, "requests a second")
	f.Uint64Var(&d.seed, "seed", 1, "seed of the arrivals and of the guest")
	f.BoolVar(&d.limits, "limits", true, "show PostgreSQL at a CPU limit too")
	f.IntVar(&d.jobs, "jobs", 2, "guests at once; changes no figure, time is virtual")
	f.StringVar(&d.topology, "topology", guest.DefaultTopology, "sockets, cores and threads of the guests; the last CPU is the client's")
	f.StringVar(&d.kernel, "kernel", guest.DefaultKernel, "kernel of the guests")
	d.programs.flags(f)
	return cmd
}

func (d *demo) run(cmd *cobra.Command) error {
	campaigns, err := d.campaigns()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	p := &demoProgress{out: out, err: cmd.ErrOrStderr(), begin: time.Now()}
	var runErr error
	for _, c := range campaigns {
		c.Progress = p.update
		c.Log = guest.ProgressLog(cmd.ErrOrStderr())
		if runErr = errors.Join(runErr, c.Run(cmd.Context())); cmd.Context().Err() != nil {
			break
		}
	}
	fmt.Fprintf(out, "\n%d windows in %v of real time\n\n", p.lines, time.Since(p.begin).Round(time.Second))
	if p.lines == 0 {
		return runErr
	}
	return errors.Join(runErr, writeReport(out, campaigns[0].Dir))
}

// campaigns checks the flags. Both parts go to one directory.
func (d *demo) campaigns() ([]*run.Campaign, error) {
	arms, err := bench.ParseArms(d.arms)
	if err != nil {
		return nil, usageError{err}
	}
	scenario, err := scenarios.Find("memcached-ladder")
	if err != nil {
		return nil, err
	}
	scenario.Topology = d.topology
	scenario.Densities, scenario.Load.Window, scenario.Points = d.densities, d.window, []bench.Point{{Name: "demo", Rate: d.rate}}
	if err := valid(scenario); err != nil {
		return nil, usageError{err}
	}
	if _, err := guest.ParseTopology(d.topology); err != nil {
		return nil, usageError{err}
	}
	if err := knownKernel(d.kernel); err != nil {
		return nil, usageError{err}
	}
	if err := d.programs.find(arms); err != nil {
		return nil, err
	}
	if d.out == "" {
		d.out = filepath.Join("out", "demo-"+time.Now().Format("20060102-150405"))
	}
	out := []*run.Campaign{d.campaign(scenario, arms)}
	if limited := atLimit(arms); d.limits && len(limited) > 0 {
		scenario, err := d.limitScenario()
		if err != nil {
			return nil, err
		}
		out = append(out, d.campaign(scenario, limited))
	}
	return out, nil
}

func (d *demo) campaign(s bench.Scenario, arms []bench.Arm) *run.Campaign {
	return &run.Campaign{
		Scenario: s, Arms: arms, SeedFirst: d.seed, Seeds: 1, Place: run.OnGuest, Kernel: d.kernel, Topology: d.topology,
		Clock: clock.Plugin, Node: d.programs.node, Temper: d.programs.temper, Dir: d.out, Jobs: d.jobs, Commit: d.programs.commit,
	}
}

// atLimit leaves the arms that a limit sets apart: tuning the stock kernel
// changes nothing about it.
func atLimit(arms []bench.Arm) []bench.Arm {
	return slices.DeleteFunc(slices.Clone(arms), func(a bench.Arm) bool { return a.BackgroundIdle || a.Static })
}

// limitScenario is PostgreSQL with eight connections that never pause, without
// background.
func (d *demo) limitScenario() (bench.Scenario, error) {
	s, err := scenarios.Find("pgbench-limit")
	if err != nil {
		return s, err
	}
	s.Topology, s.Densities, s.Load.Window = d.topology, []int{0}, min(d.window, time.Second)
	if err := pick(&s, []string{"c8"}); err != nil {
		return s, err
	}
	return s, s.Validate()
}
