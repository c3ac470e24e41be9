// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/sched"
)

// The reasons that the closed list of internal/sched lacks: those of an agent.
const (
	ReasonAttached     = "Attached"
	ReasonObserving    = "Observing"
	ReasonSafeMode     = "SafeMode"
	ReasonEjectLatched = "EjectLatched"
	ReasonSettling     = "Settling"
)

const (
	// recheckEvery is how soon a node that was mended gets its scheduler.
	recheckEvery = 30 * time.Second
	// hurryEvery is the same where the obstacle is a process, which may end.
	hurryEvery = 2 * time.Second
	// firstBackoff doubles with each loss in a row, up to maxDoublings times.
	firstBackoff = 1500 * time.Millisecond
	maxDoublings = 5
	// calmAfter is how long after a loss the next one is the first again.
	calmAfter = 10 * time.Minute
	// latchAt ejects within latchWindow are no accident: somebody has to look.
	latchAt     = 5
	latchWindow = time.Hour
	// tellAfter gives the exit record the time it usually takes, so that most
	// ejects make one Event.
	tellAfter = 500 * time.Millisecond
	// freshBoot is how long after a boot kubelet's first Ready means that pods
	// are about to start.
	freshBoot = 5 * time.Minute
)

// sight is what the supervision decides from at one moment. Its clock counts
// from the boot: what is decided does not depend on anybody setting the time.
type sight struct {
	now    time.Duration
	safeBy string // what asks for safe mode: the node's annotation, the file; "": nothing
	ready  bool   // kubelet says so, of this boot
	state  sched.State
	busy   bool // an attach or a check is under way
	// planless is why no plan can be made. A scheduler without one is worse than the
	// kernel's own: to it all pods are one group.
	planless *obstacle
	// refused is why a limit cannot be held, where all must be.
	refused *obstacle
}

// obstacle is why the scheduler cannot run here.
type obstacle struct {
	Reason  sched.Reason
	Message string
}

// verdict is what holds on the node, as its condition says it.
type verdict struct{ Reason, Message string }

// action is what the loop is to do.
type action int

const (
	nothing action = iota
	check          // whether the node could attach
	attach         // or adopt
	detach         // and remove the pins
)

// supervisor decides when the scheduler is attached. It does nothing itself:
// step takes what is seen and returns what to do; attached, assess, detached and
// taken take how that went.
type supervisor struct {
	enforce bool
	settle  time.Duration
	record  ejectRecord

	held    bool // the scheduler ran at the last look, and is this agent's
	safe    bool
	strange bool // what is attached could not be adopted: it is to be replaced

	lost    bool // it ended, and the reason is not final
	told    bool // of which there was an Event
	lostAt  time.Duration
	losses  int           // in a row
	retryAt time.Duration // 0: no loss since the last attach
	took    time.Duration // of the last attach: a pause is over when the next one is
	ended   Ending

	obstacle  *obstacle // found by the last check
	checked   bool
	checkedAt time.Duration

	quietAt time.Duration // when kubelet was Ready first
	settled bool

	verdict verdict
	news    []kube.Event   // not told yet
	endings []sched.Reason // not counted yet
}

// step looks, and returns what to do.
func (s *supervisor) step(in sight) action {
	s.noteSafe(in.safeBy)
	s.noteReady(in)
	s.watch(in)
	s.strange = s.strange && in.state.Attached
	do, v := s.choose(in)
	s.verdict = v
	if in.busy {
		return nothing
	}
	return do
}

// noteSafe opens the latch when a person ends safe mode.
func (s *supervisor) noteSafe(by string) {
	safe := by != ""
	switch {
	case safe && !s.safe:
		s.say(kube.EventSafeModeOn, "safe mode is on, by "+by+": the agent lets go of this node")
	case !safe && s.safe:
		s.say(kube.EventSafeModeOff, "safe mode is off")
		s.record.open()
		s.losses, s.retryAt = 0, 0
	}
	s.safe = safe
}

// noteReady waits out the start of a node: attaching while kubelet starts all
// its pods helps nobody.
func (s *supervisor) noteReady(in sight) {
	if s.settled || !in.ready {
		return
	}
	if s.quietAt == 0 {
		s.quietAt = in.now
	}
	s.settled = s.quietAt > freshBoot || in.now-s.quietAt >= s.settle
}

// watch notices a loss, also one that no agent has seen, and learns its reason,
// which may come later.
func (s *supervisor) watch(in sight) {
	if !s.lost && !in.state.Attached && (s.held || s.record.lacks(in.state.Exit)) {
		s.held, s.lost, s.told = false, true, false
		if in.now-s.lostAt >= calmAfter {
			s.losses = 0
		}
		s.lostAt = in.now
	}
	if !s.lost {
		return
	}
	end, final := EndOf(in.state, in.now-s.lostAt)
	s.ended = end
	switch {
	case final:
		s.lost = false
		s.end(in.state.Exit)
	case !s.told && in.now-s.lostAt >= tellAfter:
		s.told = true
		s.warn(kube.EventEjected, end.String())
	}
}

// end plans the next attach.
func (s *supervisor) end(exit *sched.Exit) {
	backoff := firstBackoff << min(s.losses, maxDoublings)
	s.losses++
	s.endings = append(s.endings, s.ended.Reason)
	s.retryAt = s.lostAt + backoff
	switch s.ended.Reason {
	case sched.Stopped:
		s.say(kube.EventDetached, s.ended.String())
	case sched.ForeignScheduler: // the next look says so
	default:
		s.warn(kube.EventEjected, s.ended.String())
	}
	s.ended.Message += fmt.Sprintf("; attaches again after %s", backoff)
	s.verdict = verdict{string(s.ended.Reason), s.ended.Message} // an attach may follow at once
	if isEject(s.ended.Reason) && s.record.add(s.lostAt, exit) {
		s.warn(kube.EventEjectLatched, latchedMessage)
	}
}

const latchedMessage = "five ejects within an hour: off until safe mode is switched on and off, or another version starts"

// isEject tells what counts as one: the dead-man and a request say nothing about
// the scheduler.
func isEject(r sched.Reason) bool {
	return r == sched.EjectedStall || r == sched.EjectedError || r == sched.EjectedSysRq
}

// choose returns what follows from what is known now.
func (s *supervisor) choose(in sight) (action, verdict) {
	foreign := in.state.Ops != "" && !sched.IsOurs(in.state.Ops)
	switch {
	case in.safeBy != "":
		return s.makeSafe(in), verdict{ReasonSafeMode, "safe mode is on, by " + in.safeBy}
	case s.held && in.refused != nil:
		return detach, in.refused.verdict()
	case s.held:
		return nothing, verdict{ReasonAttached, "threads run by their pods' tiers"}
	case s.lost:
		return nothing, verdict{string(s.ended.Reason), s.ended.Message}
	case in.state.Attached && !s.enforce:
		return detach, verdict{ReasonObserving, observing}
	case s.enforce && s.record.Latched:
		return nothing, verdict{ReasonEjectLatched, latchedMessage}
	case foreign:
		s.face(&obstacle{sched.ForeignScheduler, fmt.Sprintf("scheduler %q is loaded; it is never replaced", in.state.Ops)})
		return nothing, s.obstacle.verdict()
	}
	if !s.enforce {
		return s.prepare(in, check, verdict{ReasonObserving, observing})
	}
	return s.aim(in)
}

const observing = "mode is observe: pods are classified and measured, and nothing is attached"

// makeSafe leaves the pins until the reason of a loss is read from them.
func (s *supervisor) makeSafe(in sight) action {
	pinned := s.held || in.state.Attached || in.state.Exit != nil
	if pinned && !s.lost {
		return detach
	}
	return nothing
}

// isClear tells that safe mode has the node, and nothing of ours is left there.
func (s *supervisor) isClear(state sched.State) bool {
	return s.safe && !s.held && !s.lost && !state.Attached && state.Exit == nil
}

// aim goes for an attach as soon as one may be tried.
func (s *supervisor) aim(in sight) (action, verdict) {
	switch {
	case in.state.Attached && s.strange && in.planless != nil: // the dead-man ends it, if need be
		return nothing, verdict{ReasonSettling, "waiting to replace another build that is attached: " + in.planless.Message}
	case in.state.Attached:
		return s.prepare(in, attach, verdict{ReasonSettling, "adopting the scheduler that is attached"})
	case in.now < s.retryAt-s.took:
		return nothing, verdict{string(s.ended.Reason), s.ended.Message}
	case in.state.Kernel == disabling: // an attach would replace the record of why
		v := verdict{ReasonSettling, "waiting until the kernel has ended the scheduler before"}
		if s.retryAt > 0 { // its own, and why is known
			v = verdict{string(s.ended.Reason), s.ended.Message}
		}
		return s.prepare(in, check, v)
	case in.planless != nil: // told before kubelet is blamed, of which the API server tells
		return s.prepare(in, check, in.planless.verdict())
	case !s.settled:
		return s.prepare(in, check, verdict{ReasonSettling, "waiting until kubelet is ready and the start of the node is over"})
	case s.obstacle != nil:
		return s.prepare(in, attach, verdict{})
	}
	return attach, s.verdict
}

// prepare tries again what an obstacle prevents, each time it may be gone.
func (s *supervisor) prepare(in sight, try action, otherwise verdict) (action, verdict) {
	every := recheckEvery
	if s.obstacle != nil {
		otherwise = s.obstacle.verdict()
		if s.obstacle.Reason == sched.ForeignScheduler || in.state.Attached {
			every = hurryEvery
		}
	}
	if try == attach && s.obstacle == nil || !s.checked || in.now-s.checkedAt >= every {
		return try, otherwise
	}
	return nothing, otherwise
}

// attached is told of a scheduler that runs now, and how long that took.
func (s *supervisor) attached(adopted bool, took time.Duration) {
	s.held, s.obstacle, s.retryAt = true, nil, 0
	if !adopted {
		s.took = took
	}
	s.verdict = verdict{ReasonAttached, "threads run by their pods' tiers"}
	how := "attached"
	if adopted {
		how = "adopted what an earlier agent left attached"
	}
	s.say(kube.EventAttached, how)
}

// taken is told that another process holds the node: nothing was done of what
// step returned.
func (s *supervisor) taken(now time.Duration, owner string) {
	o := &obstacle{sched.ForeignScheduler, "process " + owner + ", temper run or another agent, holds this node"}
	s.assess(now, o)
	if s.safe {
		s.verdict.Message += "; " + o.Message
	} else {
		s.verdict = o.verdict()
	}
}

// assess is told what a check found, nil if nothing is in the way.
func (s *supervisor) assess(now time.Duration, o *obstacle) {
	s.checked, s.checkedAt = true, now
	if o == nil {
		s.obstacle = nil
		return
	}
	s.face(o)
}

// face takes note of an obstacle, and says so if it is another than before.
func (s *supervisor) face(o *obstacle) {
	if s.obstacle != nil && *s.obstacle == *o {
		return
	}
	s.obstacle = o
	switch {
	case o.Reason == sched.ForeignScheduler:
		s.warn(kube.EventForeignScheduler, o.Message)
	case o.Reason == sched.LimitsNotHeld:
		s.warn(kube.EventLimitNotEnforced, o.Message)
	case slices.Contains(unsupported, o.Reason):
		s.warn(kube.EventKernelUnsupported, string(o.Reason)+": "+o.Message)
	default:
		s.warn(kube.EventCannotAttach, string(o.Reason)+": "+o.Message)
	}
}

var unsupported = []sched.Reason{
	sched.NoSchedExt, sched.KernelTooOld, sched.NoBTF, sched.KfuncBTFMalformed,
	sched.KernelDenylisted, sched.CgroupV1, sched.VerifierRejected,
}

// detached is told that step's detach was carried out, or why not.
func (s *supervisor) detached(now time.Duration, refused *obstacle, err error) {
	s.held = false
	if err == nil {
		s.say(kube.EventDetached, s.verdict.Reason+": "+s.verdict.Message)
	} else {
		s.verdict.Message += "; not detached yet: " + err.Error()
	}
	if refused != nil {
		s.assess(now, refused)
	}
}

func (o *obstacle) verdict() verdict { return verdict{string(o.Reason), o.Message} }

func (s *supervisor) say(reason, message string) {
	s.news = append(s.news, kube.Event{Reason: reason, Message: message})
}

func (s *supervisor) warn(reason, message string) {
	s.news = append(s.news, kube.Event{Reason: reason, Message: message, Warning: true})
}
