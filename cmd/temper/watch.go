// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// refreshEvery is how soon a cgroup that was made anew gets its tier back.
const refreshEvery = time.Second

// watch keeps the attached scheduler alive and notices its end.
//
// One goroutine does both, so that a heartbeat means that somebody still
// watches. It needs no thread of its own: Temper's own tier runs within the wait
// bound, which is far below a heartbeat's interval.
type watch struct {
	engine  watched
	deadMan time.Duration
	refresh func() error
	follow  func() error // CPU limits, nil where the kernel tells of them
	log     *slog.Logger
	lostAt  time.Time // when the scheduler was seen gone; its reason may follow
}

// ending is how an attached scheduler ended.
type ending agent.Ending

func (e ending) failure() *failure {
	return &failure{
		code: codeOf(e.Reason),
		err:  fmt.Errorf("watch scheduler: %s: %s; the kernel's own scheduler runs this node", e.Reason, e.Message),
		fix:  fixes[e.Reason],
	}
}

var fixes = map[sched.Reason]string{
	sched.EjectedStall:     "temper doctor, then temper run again; report the stall with the kernel's log",
	sched.EjectedError:     "temper doctor, then temper run again; report the error with the kernel's log",
	sched.EjectedSysRq:     "somebody pressed SysRq-S: find out why, then temper run again",
	sched.AgentStale:       "this process was stopped or starved: find out why, then temper run again",
	sched.ForeignScheduler: "stop the other scheduler, then temper run again",
}

// run returns nil when ctx ends, and the ending when the scheduler does.
func (w *watch) run(ctx context.Context) *ending {
	ticker := time.NewTicker(agent.PollEvery)
	defer ticker.Stop()
	var beat, refreshed time.Time
	quiet := map[string]bool{}
	for {
		now := time.Now()
		if end := w.poll(quiet); end != nil {
			return end
		}
		if w.lostAt.IsZero() && now.Sub(beat) >= w.deadMan/agent.Heartbeats {
			w.note(quiet, "write heartbeat", w.engine.Heartbeat())
			beat = now
		}
		if w.lostAt.IsZero() && now.Sub(refreshed) >= refreshEvery {
			w.note(quiet, "refresh plan", w.refresh())
			if w.follow != nil {
				w.note(quiet, "follow CPU limits", w.follow())
			}
			refreshed = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// note logs the first failure of a kind until it works again: the loop tries
// it again soon, and the dead-man is behind it.
func (w *watch) note(quiet map[string]bool, step string, err error) {
	if err != nil && !quiet[step] {
		w.log.Warn("watch step failed, trying again", "step", step, "err", err)
	}
	quiet[step] = err != nil
}

// poll returns how the scheduler ended, once that is known. Its loss is logged at
// once: the reason may follow seconds later.
func (w *watch) poll(quiet map[string]bool) *ending {
	state, err := w.engine.State()
	w.note(quiet, "read state", err)
	if err != nil {
		return nil
	}
	if state.Attached {
		w.lostAt = time.Time{}
		return nil
	}
	if w.lostAt.IsZero() {
		w.lostAt = time.Now()
	}
	end, final := agent.EndOf(state, time.Since(w.lostAt))
	w.note(quiet, "read exit record", pending(end, final))
	if !final {
		return nil
	}
	last := ending(end)
	return &last
}

func pending(end agent.Ending, final bool) error {
	if final {
		return nil
	}
	return errors.New(end.Message)
}

// refresh gives cgroups that were removed and made again since the plan was
// applied their tier back: a new cgroup has a new id. It follows the plan in
// force, which may be another than the one this process started with.
func (n node) refresh(a applier) error {
	l, held, err := agent.TryHoldPlan(n.runDir) // a stuck apply must not stop the heartbeat
	if err != nil || !held {
		return err
	}
	defer l.Release()
	state, err := a.State()
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	r, found, err := loadRecord(n.runDir, state)
	if err != nil || !found {
		return err
	}
	tree, err := n.tree()
	if err != nil {
		return err
	}
	plan, moved := renumber(r.Plan, tree.ID)
	if len(moved) == 0 {
		return nil
	}
	if _, err := n.putHeld(a, plan, r.File); err != nil {
		return err
	}
	n.log.Info("plan follows new cgroups", "cgroups", moved)
	return nil
}

// renumber returns plan with the ids that its paths have now, and the paths
// whose id changed. A cgroup that is gone keeps its old id, which matches nothing.
func renumber(plan policy.Plan, id func(string) (uint64, error)) (policy.Plan, []string) {
	renumbered := policy.Plan{Lend: plan.Lend, CPUMax: plan.CPUMax}
	var moved []string
	for _, g := range plan.Groups {
		if now, err := id(g.Cgroup); err == nil && now != g.ID {
			g.ID = now
			moved = append(moved, g.Cgroup)
		}
		renumbered.Groups = append(renumbered.Groups, g)
	}
	return renumbered, moved
}
