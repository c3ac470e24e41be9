// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
)

// behindAfter is how long the newest plan may not be in force until the node says so.
const behindAfter = 5 * time.Second

// replan decides from what is there now, and puts it in force. What fails is
// tried again with the next change or refresh.
func (l *loop) replan() {
	err := l.decide()
	if l.behind == nil {
		l.behindAt = time.Now()
	}
	l.behind = err
}

// planless is why no plan can be made, nil if one can.
func (l *loop) planless() *obstacle {
	switch {
	case !l.known:
		return &obstacle{ReasonSettling, "the API server has not told of this node and its pods yet: the agent's log says why"}
	case l.behind != nil:
		return &obstacle{sched.AttachFailed, "no plan could be put in force: " + l.behind.Error()}
	}
	return nil
}

// mindPlan has a scheduler go for which there is no plan, also one that was adopted so.
func (l *loop) mindPlan() {
	if !l.super.held || l.state.Generation != 0 {
		return
	}
	l.refused = &obstacle{sched.AttachFailed, "it was attached without a plan"}
	if why := l.planless(); why != nil {
		l.refused.Message += ": " + why.Message
	}
}

// sayBehind adds to what a step has just said.
func (l *loop) sayBehind() {
	if l.super.held && l.behind != nil && time.Since(l.behindAt) >= behindAfter {
		l.super.verdict.Message += "; not by the newest plan: " + l.behind.Error()
	}
}

func (l *loop) decide() error {
	since := l.dirtyAt
	l.dirtyAt, l.plannedAt = time.Time{}, time.Now()
	err := l.observe()
	l.note("observe node", err)
	// A plan without the pods would take the tiers of all that are attached.
	if err != nil || !l.known {
		return err
	}
	// The cgroup of a pod that is not known yet changes nothing, nor does that of
	// one that is gone.
	if l.from == nil || !l.from.Equal(l.obs) {
		l.plan = policy.Decide(l.plan, l.obs)
		from := l.obs
		l.from = &from
		l.tellUnfenced()
	}
	if !l.super.held {
		return nil
	}
	l.yield()
	planned := l.plan
	var ops []policy.Op
	if l.applied != nil {
		if ops = policy.Diff(*l.applied, planned); len(ops) == 0 && !l.again {
			l.applied = &planned // with what the kernel side does not know: paths, and why there is no fence
			return nil
		}
	}
	began := time.Now()
	err = l.apply()
	l.note("apply plan", err)
	if l.again = err != nil; l.again {
		return err
	}
	l.counts.apply.Observe(time.Since(began))
	l.applied = &planned
	if generation, err := l.engine.Generation(); err == nil {
		l.state.Generation, l.counts.generation = generation, generation
	}
	l.countEffective(ops, since)
	return nil
}

// apply puts the plan in force, unless a temper apply is at it: two that fill the same
// generation would make one plan of two.
func (l *loop) apply() error {
	lock, held, err := TryHoldPlan(l.Config.RunDir)
	l.note("hold plan", err) // without it, as in hold: a temper apply cannot have it either
	switch {
	case held:
		defer lock.Release()
	case err == nil:
		return errors.New("another process changes the plan at this moment")
	}
	return l.engine.Apply(l.plan)
}

// yield applies again if somebody else has applied a plan since.
func (l *loop) yield() {
	if l.counts.generation != 0 && l.state.Generation != l.counts.generation {
		l.again = true
	}
}

// countEffective counts how long the pods waited that the ops are about.
func (l *loop) countEffective(ops []policy.Op, since time.Time) {
	if since.IsZero() {
		return
	}
	for _, op := range ops {
		ofPod := !slices.ContainsFunc(l.obs.Defaults, func(g policy.Group) bool { return g.ID == op.Group.ID })
		if op.Kind == policy.OpSet && ofPod {
			l.counts.effective.Observe(time.Since(since))
		}
	}
}

// observe puts together what is known of the node. Cgroups are looked up anew
// whenever some came or went: one that was made again has another id.
func (l *loop) observe() (err error) {
	if !l.surveyed {
		if l.obs.Topology, err = l.Machine.Topology(); err != nil {
			return err
		}
		l.surveyed = true
	}
	if !l.looked {
		if l.defaults, l.places, err = l.Cgroups.Look(); err != nil {
			return fmt.Errorf("look at pods' cgroups: %w", err)
		}
		l.looked = true
	}
	obs := policy.Observation{
		Topology: l.obs.Topology, Defaults: l.defaults, Pods: make([]policy.Pod, 0, len(l.snapshot.Pods)),
		Reserved: l.Config.Reserved, Lend: l.Config.Lend, CPUMax: l.Config.CPUMax,
	}
	for _, p := range l.snapshot.Pods {
		at := l.places[p.UID]
		p.Cgroup, p.ID, p.Exclusive = at.Cgroup, at.ID, at.Exclusive
		obs.Pods = append(obs.Pods, p)
	}
	l.obs = obs
	return nil
}

// tellUnfenced writes an Event on each critical pod that gets no fence, once.
func (l *loop) tellUnfenced() {
	why := map[uint64]string{}
	for i := range l.plan.Groups {
		if g := &l.plan.Groups[i]; g.NotFenced != "" {
			why[g.ID] = g.NotFenced
		}
	}
	told := map[string]string{}
	for i := range l.obs.Pods {
		p := &l.obs.Pods[i]
		if p.Tier != tier.Critical || p.ID == 0 || why[p.ID] == "" {
			continue
		}
		reason := why[p.ID]
		told[p.UID] = reason
		if _, before := l.told[p.UID]; !before {
			l.publisher.say(kube.Event{Pod: p, Reason: kube.EventCriticalOverCapacity, Message: "no cores are planned for it: " + reason, Warning: true})
		}
	}
	l.told = told
}

// holdLimits looks after CPU limits, once a second while attached.
func (l *loop) holdLimits() {
	if !l.super.held {
		return
	}
	if l.limits != nil {
		l.note("follow CPU limits", l.limits.Follow())
	}
	l.refused = l.checkLimits()
	unheld, err := l.engine.LimitsNotHeld()
	l.note("read limits that are not held", err)
	if err != nil || unheld == l.unheld {
		return
	}
	l.unheld = unheld
	message := fmt.Sprintf("%d CPU limits found no room and do nothing", unheld)
	l.publisher.say(kube.Event{Reason: kube.EventLimitNotEnforced, Message: message, Warning: true})
	if l.Config.CPUMax == policy.CPUMaxRefuse {
		l.refused = &obstacle{sched.LimitsNotHeld, message}
	}
}

// checkLimits returns why not every limit can be held, where all must be.
func (a *Agent) checkLimits() *obstacle {
	if a.Config.CPUMax != policy.CPUMaxRefuse {
		return nil
	}
	can, err := a.Machine.LimitSupport()
	limits, listErr := a.Cgroups.Limits()
	if err := errors.Join(err, listErr); err != nil {
		return &obstacle{sched.LimitsNotHeld, err.Error()} // not known to be held
	}
	if p := policy.CheckLimits(limits, can); p != nil {
		return &obstacle{sched.LimitsNotHeld, fmt.Sprintf("cpuMax is refuse: %s; %s", p.Cause, p.Fix)}
	}
	return nil
}

// newFollower returns nil where the kernel itself tells of limits.
func (l *loop) newFollower() *Follower {
	can, err := l.Machine.LimitSupport()
	l.note("find out which CPU limits can be held", err)
	if err != nil || can.Told {
		return nil
	}
	return &Follower{List: l.Cgroups.Limits, Set: l.engine.SetLimit, Held: l.engine.Limits}
}
