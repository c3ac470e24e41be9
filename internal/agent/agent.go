// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/metric"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// Config is what an agent is told.
type Config struct {
	config.Agent
	Node    string
	Version string
	Build   string // of the program: another one opens the eject latch
	PinDir  string
	RunDir  string
}

// Agent keeps a node. Its fields are what it works with; Run does the rest.
type Agent struct {
	Config  Config
	Machine Machine
	Cgroups Cgroups
	Cluster Cluster
	Log     *slog.Logger

	view atomic.Pointer[view] // what the loop published last
	beat atomic.Int64         // when it ticked last, in nanoseconds since the boot
}

// New returns an agent that does nothing before Run.
func New(cfg Config, m Machine, g Cgroups, c Cluster, log *slog.Logger) *Agent {
	return &Agent{Config: cfg, Machine: m, Cgroups: g, Cluster: c, Log: log}
}

// Run keeps the node until ctx ends. The scheduler stays attached then: the next
// agent adopts it, or the dead-man ends it. A step that fails is tried again: the
// kernel keeps the last plan, which is always a valid one.
func (a *Agent) Run(ctx context.Context) error {
	ejects, err := loadEjects(a.Config.RunDir, a.Config.Build, a.Machine.Uptime())
	if err != nil {
		a.Log.WarnContext(ctx, "ejects before this start are not known", "err", err)
	}
	l := a.newLoop(ejects)
	var others sync.WaitGroup
	others.Go(func() { l.publisher.run(ctx) })
	others.Go(func() { l.prober.run(ctx) })
	others.Go(func() { a.follow(ctx, "cgroups", func() error { return a.Cgroups.Watch(ctx, l.cgroupsChanged) }) })
	others.Go(func() {
		a.follow(ctx, "cluster", func() error {
			return a.Cluster.Run(ctx, func(s kube.Snapshot) {
				select {
				case l.heard <- s:
				case <-ctx.Done():
				}
			})
		})
	})
	l.run(ctx)
	others.Wait()
	return l.close()
}

// follow runs what should end with ctx alone, again if it does not: after pauses
// that double up to recheckEvery, unless it ran for longer than that. It logs why,
// if that is not what it logged last.
func (a *Agent) follow(ctx context.Context, what string, run func() error) {
	pause, logged := againAfter, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := run()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > recheckEvery {
			pause, logged = againAfter, ""
		}
		if text := fmt.Sprint(err); text != logged {
			a.Log.WarnContext(ctx, "watch ended, starting it again", "of", what, "err", err)
			logged = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, recheckEvery)
	}
}

// SafeModeFile is the file below dir whose presence is safe mode.
func SafeModeFile(dir string) string { return filepath.Join(dir, "safe-mode") }

// safeBy is what asks for safe mode, "" if nothing does.
func (l *loop) safeBy() string {
	var by []string
	if l.snapshot.Node.SafeMode {
		by = append(by, "the node's annotation "+kube.SafeModeAnnotation)
	}
	file := SafeModeFile(l.Config.RunDir)
	if _, err := os.Stat(file); err == nil {
		by = append(by, "the file "+file)
	}
	return strings.Join(by, " and ")
}

func (a *Agent) newLoop(ejects ejectRecord) *loop {
	return &loop{
		Agent:     a,
		publisher: newPublisher(a.Cluster, a.Log),
		prober:    newProber(a.Machine.Measure, a.Log),
		heard:     make(chan kube.Snapshot),
		changed:   make(chan struct{}, 1),
		done:      make(chan outcome, 1),
		due:       stopped(),
		super:     supervisor{enforce: a.Config.Mode == config.Enforce, settle: a.Config.Settle, record: ejects},
		failing:   map[string]bool{},
		told:      map[string]string{},
		counts: counts{
			ejects: map[sched.Reason]int{}, attach: metric.NewDist(metric.Steps),
			apply: metric.NewDist(metric.Steps), effective: metric.NewDist(metric.Steps),
		},
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// loop is what Run's goroutine owns.
type loop struct {
	*Agent
	publisher *publisher
	prober    *prober
	heard     chan kube.Snapshot
	changed   chan struct{} // cgroups came or went
	done      chan outcome  // of the attach or check under way
	due       *time.Timer   // for changes that wait for others

	super    supervisor
	noRecord bool // of ejects is on disk
	swept    bool // nothing is pinned
	snapshot kube.Snapshot
	known    bool // the API server was heard of once

	here    *Lock  // says that an agent runs
	lock    *Lock  // on the node, from an attach to the detach
	engine  Engine // nil while no scheduler is held, or remains to be read
	state   sched.State
	checks  []sched.Check
	busy    bool // an attach or check is under way
	limits  *Follower
	refused *obstacle
	unheld  uint64
	attachN int

	defaults  []policy.Group // as the last look found them, with places by UID
	places    map[string]Place
	looked    bool               // and nothing has changed since
	surveyed  bool               // the CPUs, since the last refresh
	obs       policy.Observation // the last
	plan      policy.Plan
	from      *policy.Observation // what it was decided from; nil: the kernel side had it
	applied   *policy.Plan        // nil: not known
	again     bool                // apply, whatever was applied
	plannedAt time.Time
	behind    error     // why the newest plan is not in force
	behindAt  time.Time // since when
	dirtyAt   time.Time // when the oldest change was heard of that is not in force; zero: none

	measuring   measuring
	refreshedAt time.Time
	beatAt      time.Time
	marked      mark
	since       time.Time
	failing     map[string]bool   // steps, to log the first failure of each
	told        map[string]string // why pods have no fence, as their Events say
	counts      counts
}

// cgroupsChanged never waits: one change that is not taken up yet stands for all.
func (l *loop) cgroupsChanged() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// note logs the first failure of a step until it works again.
func (l *loop) note(step string, err error) {
	if err != nil && !l.failing[step] {
		l.Log.Warn("step failed, trying again", "step", step, "err", err)
	}
	l.failing[step] = err != nil
}

// close leaves the scheduler as it is, but for one that has no plan yet.
func (l *loop) close() error {
	if l.busy {
		if out := <-l.done; out.engine != nil {
			l.engine = out.engine
		}
	}
	defer l.release()
	if l.here != nil {
		defer l.here.Release()
	}
	if l.engine == nil {
		return nil
	}
	if generation, err := l.engine.Generation(); err == nil && generation == 0 {
		return l.engine.Detach()
	}
	return l.engine.Close()
}
