// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/topology"
)

// errNotAttached is returned while the kernel's own scheduler runs.
var errNotAttached = errors.New("the scheduler is not attached")

// node is the machine as the subcommands see it. Tests put another in its place.
type node struct {
	stdout, stderr io.Writer
	log            *slog.Logger

	preflight func(pinDir string) []sched.Check
	attach    func(context.Context, sched.Config) (engine, error)
	// open also finds what an ejected scheduler left pinned.
	open      func(pinDir string) (engine, error)
	readState func(pinDir string) (sched.State, error)
	// clear removes what an attach that was killed left pinned, if it did.
	clear func(pinDir string) (bool, error)
	// limitSupport is which CPU limits can be held here.
	limitSupport func() (policy.LimitSupport, error)

	sysfs   string // where topology.Read looks
	cgroups string // where the cgroup hierarchy is mounted
	runDir  string // locks and the record of the plan in force

	letGo time.Duration // how long an agent may take to leave off

	unmeasured bool // run without the probe
}

// engine is the attached scheduler.
type engine interface {
	applier
	watched
	Plan() (policy.Plan, error)
	Measure() (io.Closer, error)
	Stats() (sched.Stats, error)
	Limits() ([]sched.LimitStats, error)
	LimitsNotHeld() (uint64, error)
	SetLimit(policy.Limit) error
	Adopted() bool
	Detach() error
	Close() error
}

// applier takes plans.
type applier interface {
	Apply(policy.Plan) error
	State() (sched.State, error)
}

// watched is what the loop of run keeps alive and looks at.
type watched interface {
	Heartbeat() error
	State() (sched.State, error)
}

// liveNode is the machine this process runs on.
func liveNode() node {
	return node{
		stdout:    os.Stdout,
		stderr:    os.Stderr,
		log:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		preflight: sched.Preflight,
		attach: func(ctx context.Context, cfg sched.Config) (engine, error) {
			s, err := sched.Attach(ctx, cfg)
			if err != nil {
				return nil, translate(err)
			}
			return live{s}, nil
		},
		open: func(pinDir string) (engine, error) {
			s, err := sched.Open(pinDir)
			if err != nil {
				return nil, translate(err)
			}
			return live{s}, nil
		},
		limitSupport: sched.LimitSupport,

		readState: sched.ReadState,
		clear:     sched.Clear,
		sysfs:     topology.Root,
		cgroups:   cgroup.Root,
		runDir:    "/run/temper",
		letGo:     detachWithin, // an agent looks four times a second, the kernel may take as long as for a stop
	}
}

// live is the attached scheduler with the interface's own types.
type live struct{ *sched.Scheduler }

// Measure starts the probe.
func (l live) Measure() (io.Closer, error) { return l.Scheduler.Measure() }

// translate gives the engine's errors the exit codes of the command line.
func translate(err error) error {
	if errors.Is(err, sched.ErrNotAttached) {
		return errNotAttached
	}
	if e, ok := errors.AsType[*sched.Error](err); ok {
		return &refusal{reason: e.Reason, fix: e.Fix, err: e.Err}
	}
	return err
}

// openAttached is open for those who need the scheduler alive.
func (n node) openAttached(pinDir string) (engine, error) {
	e, err := n.open(pinDir)
	if err != nil {
		return nil, fmt.Errorf("open scheduler: %w", err)
	}
	state, err := e.State()
	if err == nil && !state.Attached {
		err = errNotAttached
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open scheduler: %w", err), e.Close())
	}
	return e, nil
}

func (n node) topology() (topology.Topology, error) {
	top, err := topology.Read(os.DirFS(n.sysfs))
	if err != nil {
		return topology.Topology{}, fmt.Errorf("read topology in %s: %w", n.sysfs, err)
	}
	return top, nil
}

// tree returns the cgroup hierarchy, or a refusal that says why there is none.
func (n node) tree() (*cgroup.Tree, error) {
	t, err := cgroup.Open(n.cgroups)
	if errors.Is(err, cgroup.ErrNotUnified) || errors.Is(err, cgroup.ErrNoController) {
		return nil, &refusal{
			reason: sched.CgroupV1,
			err:    err,
			fix:    "boot with systemd.unified_cgroup_hierarchy=1",
		}
	}
	return t, err
}
