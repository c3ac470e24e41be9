// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

const (
	// PollEvery keeps the promise that an eject is noticed within a second, with
	// room for a busy node. A poll reads three small files and a map.
	PollEvery = 250 * time.Millisecond
	// refreshEvery is how soon what no watch told is seen.
	refreshEvery = time.Second
	// Heartbeats is how many fit in the dead-man's time.
	Heartbeats = 10
	// planEvery bounds how often plans are decided while pods come in numbers.
	planEvery = 3 * time.Millisecond
)

// run turns until ctx ends. One goroutine keeps everything, so that a heartbeat
// means that somebody looks after all of it.
func (l *loop) run(ctx context.Context) {
	ticker := time.NewTicker(PollEvery)
	defer ticker.Stop()
	defer l.due.Stop()
	l.note("observe node", l.observe()) // an attach needs the CPUs
	if other, err := Attended(l.Config.RunDir); err == nil && !other {
		l.note("remove an earlier probe", l.Machine.SweepProbe())
	}
	l.tick(ctx)
	for {
		l.view.Store(l.show())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.tick(ctx)
		case s := <-l.heard:
			l.hear(ctx, s)
		case <-l.changed:
			l.looked = false
			l.mark()
		case <-l.due.C:
			l.replan()
		case out := <-l.done:
			l.finish(out)
			l.tick(ctx)
		}
	}
}

// hear takes what the cluster says. Safe mode does not wait for the next tick.
func (l *loop) hear(ctx context.Context, s kube.Snapshot) {
	changed := !l.known || s.Node != l.snapshot.Node
	l.snapshot, l.known = s, true
	l.mark()
	if changed {
		l.tick(ctx)
	}
}

// mark has the plan decided anew: at once, or with what else comes while the
// last one is young.
func (l *loop) mark() {
	if !l.dirtyAt.IsZero() {
		return
	}
	l.dirtyAt = time.Now()
	if wait := planEvery - time.Since(l.plannedAt); wait > 0 {
		l.due.Reset(wait)
		return
	}
	l.replan()
}

// tick looks at the scheduler, does what follows, and keeps the dead-man away.
func (l *loop) tick(ctx context.Context) {
	l.beat.Store(int64(l.Machine.Uptime()))
	if l.look() {
		l.mindPlan()
		l.do(ctx, l.super.step(l.sight()))
		l.sayBehind()
	}
	if !l.super.held {
		l.unheld = 0 // it was of that attach
	}
	if l.super.held && time.Since(l.beatAt) >= l.Config.DeadMan/Heartbeats {
		l.note("write heartbeat", l.engine.Heartbeat())
		l.beatAt = time.Now()
	}
	if time.Since(l.refreshedAt) >= refreshEvery {
		l.refreshedAt = time.Now()
		l.attend()
		l.looked, l.surveyed = false, false
		l.mark()
		l.holdLimits()
	}
	l.settle()
}

// look reads what schedules the node; false if a held scheduler cannot be asked.
func (l *loop) look() bool {
	if l.engine != nil {
		state, err := l.engine.State()
		l.note("read state", err)
		if err == nil {
			l.state = state
		}
		return err == nil
	}
	state, err := l.Machine.ReadState()
	if errors.Is(err, sched.ErrOtherBuild) && sched.IsOurs(state.Ops) {
		state.Attached, err = true, nil // to be replaced
	}
	l.note("read state", err)
	l.state = state
	return true
}

func (l *loop) sight() sight {
	node := l.snapshot.Node
	thisBoot := node.BootID == "" || l.Machine.BootID == "" || node.BootID == l.Machine.BootID
	return sight{
		now: l.Machine.Uptime(), safeBy: l.safeBy(), ready: l.known && node.Ready && thisBoot,
		state: l.state, busy: l.busy, refused: l.refused, planless: l.planless(),
	}
}

// do carries out what the supervision decided.
func (l *loop) do(ctx context.Context, what action) {
	switch what {
	case attach:
		l.beginAttach(ctx)
	case check:
		l.busy = true
		go func() { l.done <- outcome{checks: l.Machine.Preflight()} }()
	case detach:
		l.detach()
	}
}

// outcome is how an attach or a check went.
type outcome struct {
	attach bool
	checks []sched.Check
	found  *obstacle
	engine Engine // nil without an obstacle: there was nothing to adopt
	took   time.Duration
}

func (l *loop) beginAttach(ctx context.Context) {
	if len(l.obs.Topology.CPUs) == 0 {
		return // not read yet; its failure was noted
	}
	if !l.hold() {
		return
	}
	l.letGo()
	l.busy = true
	if l.planless() != nil { // adopt what has a plan: with an ended context nothing is loaded
		ended, end := context.WithCancel(ctx)
		end()
		ctx = ended
	}
	cfg := sched.Config{PinDir: l.Config.PinDir, DeadMan: l.Config.DeadMan, CPUs: l.obs.Topology.CPUs, Log: l.Log}
	go func() { l.done <- l.tryAttach(ctx, cfg) }()
}

// hold takes the node's lock; false if another process has it.
func (l *loop) hold() bool {
	if l.lock != nil {
		return true
	}
	lock, err := HoldNode(l.Config.RunDir, AsAgent)
	if busy, ok := errors.AsType[*BusyError](err); ok {
		l.super.taken(l.Machine.Uptime(), busy.Owner)
		return false
	}
	l.note("hold node", err) // without it: a run directory that cannot be written is no reason to do less
	l.lock = lock
	return true
}

// attend leaves word that an agent is here.
func (l *loop) attend() {
	if l.here != nil {
		return
	}
	var err error
	l.here, err = Attend(l.Config.RunDir)
	l.note("say that an agent is here", err)
}

// release lets a temper run, or another agent, have the node.
func (l *loop) release() {
	if l.lock != nil {
		l.lock.Release()
		l.lock = nil
	}
}

// tryAttach runs beside the loop: it takes seconds on a slow machine.
func (a *Agent) tryAttach(ctx context.Context, cfg sched.Config) outcome {
	began := time.Now()
	out := outcome{attach: true, checks: a.Machine.Preflight()}
	if out.found = obstacleIn(out.checks); out.found != nil {
		return out
	}
	if out.found = a.checkLimits(); out.found != nil {
		return out
	}
	var err error
	out.engine, err = a.Machine.Attach(ctx, cfg)
	switch {
	case errors.Is(err, context.Canceled):
		out.engine = nil
	case err != nil:
		out.engine, out.found = nil, obstacleOf(err)
	}
	out.took = time.Since(began)
	return out
}

func obstacleIn(checks []sched.Check) *obstacle {
	for _, c := range checks {
		if !c.OK {
			return &obstacle{c.Reason, fmt.Sprintf("%s: %s; %s", c.Name, c.Detail, c.Fix)}
		}
	}
	return nil
}

func obstacleOf(err error) *obstacle {
	if e, ok := errors.AsType[*sched.Error](err); ok {
		return &obstacle{e.Reason, fmt.Sprintf("%v; %s", e.Err, e.Fix)}
	}
	return &obstacle{sched.AttachFailed, err.Error()}
}

// finish takes up what was attached, or what is in the way.
func (l *loop) finish(out outcome) {
	l.busy = false
	l.checks = out.checks
	now := l.Machine.Uptime()
	if !out.attach {
		l.super.assess(now, obstacleIn(out.checks))
		return
	}
	l.super.assess(now, out.found)
	l.super.strange = out.engine == nil && out.found == nil
	if out.engine == nil {
		l.dropOld(out.found)
		l.release() // a temper run may succeed
		return
	}
	l.engine, l.refused = out.engine, nil
	l.attachN++
	l.counts.attach.Observe(out.took)
	l.super.attached(l.engine.Adopted(), out.took)
	l.beatAt = time.Now()
	l.applied = nil
	if l.engine.Adopted() {
		l.readPlan()
	}
	l.look()
	l.counts.generation = l.state.Generation
	l.limits = l.newFollower()
	l.Log.Info("scheduler attached", "adopted", l.engine.Adopted(), "took", out.took)
	l.replan()
}

// dropOld takes off what an earlier agent left, where this one cannot look after it.
func (l *loop) dropOld(found *obstacle) {
	l.look()
	if found != nil && found.Reason != sched.ForeignScheduler && l.state.Attached {
		l.super.verdict = found.verdict()
		l.detach()
	}
}

// readPlan makes fences stay where the scheduler that was adopted has them.
func (l *loop) readPlan() {
	plan, err := l.engine.Plan()
	l.note("read plan", err)
	if err == nil {
		l.plan, l.applied, l.from = plan, &plan, nil
	}
}

// detach also removes the pins of a scheduler that nobody holds any more. One that
// another process holds is that process's.
func (l *loop) detach() {
	if l.engine == nil && !l.hold() {
		return
	}
	defer l.release()
	engine := l.engine
	if engine == nil {
		var err error
		if engine, err = l.Machine.Open(); err != nil {
			l.note("open scheduler", err)
			return
		}
	}
	err := engine.Detach()
	l.note("detach scheduler", err)
	l.engine, l.applied = nil, nil
	l.super.detached(l.Machine.Uptime(), l.refused, err)
	if err == nil {
		l.Log.Info("scheduler detached", "reason", l.super.verdict.Reason)
	}
	l.refused = nil
	l.look()
}

// letGo gives up the handle on a scheduler that is gone.
func (l *loop) letGo() {
	if l.engine == nil {
		return
	}
	l.note("close scheduler", l.engine.Close())
	l.engine, l.applied = nil, nil
}

// settle passes on what changed: to the API server, the probe and the disk.
func (l *loop) settle() {
	for _, e := range l.super.news {
		l.publisher.say(e)
		l.Log.Info("event", "reason", e.Reason, "message", e.Message)
	}
	l.super.news = nil
	for _, r := range l.super.endings {
		l.counts.ejects[r]++
	}
	l.super.endings = nil
	l.keepEjects()
	l.sweep()
	l.publish()
	l.measure()
}

// keepEjects has the record on disk be what it shall be after a restart.
func (l *loop) keepEjects() {
	switch {
	case l.super.isClear(l.state):
		if l.noRecord {
			return
		}
		err := removeEjects(l.Config.RunDir)
		l.note("remove record of ejects", err)
		l.noRecord = err == nil
	case l.super.record.unsaved:
		l.noRecord = false
		l.note("save record of ejects", l.super.record.save(l.Config.RunDir))
	}
}

// sweep removes what the state does not tell of, once safe mode has the node: pins of
// processes that were killed while they made or removed them, and of a dead build that
// cannot be read.
func (l *loop) sweep() {
	if !l.super.isClear(l.state) {
		l.swept = false
		return
	}
	if l.swept || l.busy && l.lock != nil { // an attach is under way
		return
	}
	if l.lock == nil {
		lock, err := HoldNode(l.Config.RunDir, AsAgent)
		if _, busy := errors.AsType[*BusyError](err); busy {
			return // the pins are that process's, until it ends
		}
		if l.note("hold node", err); err != nil {
			return
		}
		l.lock = lock
	}
	defer l.release()
	l.letGo()
	err := l.Machine.Sweep()
	l.note("remove what is left pinned", err)
	l.swept = err == nil
}

// publish marks the node when what holds has changed.
func (l *loop) publish() {
	v := l.super.verdict
	adopting := l.state.Attached && !l.super.held && v.Reason == ReasonSettling
	if v.Reason == "" || adopting {
		return // what the agent before this one said still holds
	}
	m := mark{kube.Condition{Ready: v.Reason == ReasonAttached, Reason: v.Reason, Message: v.Message}, l.engineLabel()}
	if m == l.marked {
		return
	}
	if m.condition.Reason != l.marked.condition.Reason {
		l.since = time.Now()
		l.Log.Info("node changed", "reason", v.Reason, "message", v.Message)
	}
	l.marked = m
	l.publisher.set(m)
}

func (l *loop) engineLabel() string {
	switch {
	case l.super.held:
		return kube.EngineAttached
	case l.super.safe || l.super.verdict.Reason == ReasonEjectLatched:
		return kube.EngineSafe
	}
	return kube.EngineObserve
}

// measure asks for the probe that fits: none while a loss is looked into, safe
// mode is on, or the scheduler is another process's, which measures by its plan.
func (l *loop) measure() {
	want := measuring{}
	switch {
	case l.super.held:
		want = measuring{on: true, attach: l.attachN}
	case l.super.safe || l.super.lost || l.busy || !l.known || l.state.Attached:
	case l.super.verdict.Reason == ReasonObserving || l.super.obstacle != nil:
		want = measuring{on: true, own: true, attach: l.attachN, plan: l.plan}
	}
	same := want.on == l.measuring.on && want.own == l.measuring.own && want.attach == l.measuring.attach
	if same && len(policy.Diff(want.plan, l.measuring.plan)) == 0 {
		return
	}
	if l.busy && l.measuring.own && !l.super.safe {
		return // a check in observe mode does not interrupt what is measured
	}
	l.measuring = want
	l.prober.ask(want)
}
