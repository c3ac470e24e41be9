// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

const (
	noTier   = uint64(tier.Count)
	critical = uint64(tier.Critical)
	system   = uint64(tier.System)
	standard = uint64(tier.Standard)
	backgr   = uint64(tier.Background)

	perCore    = uint64(policy.LendPerCore)
	landing    = uint64(policy.LendLanding)
	wholeLayer = uint64(policy.LendWholeLayer)

	ms = uint64(time.Millisecond)
)

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// The kernel side's decisions, run by the kernel, without a scheduler.
func TestDecisions(t *testing.T) {
	requireBPF(t)
	var objects policytestObjects
	if err := loadPolicytestObjects(&objects, nil); err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	const now = 1_000_000 * ms
	for _, c := range []struct {
		name string
		prog *ebpf.Program
		in   [4]uint64
		want uint64
	}{
		{"critical takes a CPU from background", objects.DecideMayPreempt, in(critical, backgr), 1},
		{"critical takes a CPU from system", objects.DecideMayPreempt, in(critical, system), 1},
		{"standard takes a CPU from background", objects.DecideMayPreempt, in(standard, backgr), 1},
		{"critical takes none from critical", objects.DecideMayPreempt, in(critical, critical), 0},
		{"background takes none from background", objects.DecideMayPreempt, in(backgr, backgr), 0},
		{"background takes none from standard", objects.DecideMayPreempt, in(backgr, standard), 0},
		{"nobody takes one from what is not ranked", objects.DecideMayPreempt, in(critical, noTier), 0},

		{"per-core lends to the last CPU", objects.DecideMayLend, in(perCore, bit(true), bit(false)), 1},
		{"landing keeps the last CPU of a busy pod", objects.DecideMayLend, in(landing, bit(true), bit(false)), 0},
		{"landing lends what is beyond it", objects.DecideMayLend, in(landing, bit(true), bit(true)), 1},
		{"landing lends an idle pod's last CPU", objects.DecideMayLend, in(landing, bit(false), bit(false)), 1},
		{"whole-layer lends nothing of a busy pod", objects.DecideMayLend, in(wholeLayer, bit(true), bit(true)), 0},
		{"whole-layer lends an idle pod's fence", objects.DecideMayLend, in(wholeLayer, bit(false), bit(true)), 1},

		{"background shares no core with critical", objects.DecideMayShareCore, in(backgr, bit(true)), 0},
		{"background shares a core with others", objects.DecideMayShareCore, in(backgr, bit(false)), 1},
		{"standard shares a core with critical", objects.DecideMayShareCore, in(standard, bit(true)), 1},

		{"earlier is before", objects.DecideVtimeBefore, in(1, 2), 1},
		{"equal is not before", objects.DecideVtimeBefore, in(2, 2), 0},
		{"before holds where the clock wraps", objects.DecideVtimeBefore, in(math.MaxUint64-1, 1), 1},
		{"who slept has two slices' credit", objects.DecideCreditOf, in(40 * ms), 10 * ms},
		{"who wants more has eight", objects.DecideCreditOf, in(40*ms - 1), 40 * ms},
		{"also by a clock behind", objects.DecideCreditOf, in(math.MaxUint64), 40 * ms},
		{"credit is CPU time by the default weight", objects.DecideCreditCost, in(10*ms, 100), 10 * ms},
		{"a light group's, too", objects.DecideCreditCost, in(10*ms, 1), 1000 * ms},
		{"a heavy group keeps as much as the default weight's", objects.DecideCreditCost, in(10*ms, 10000), 10 * ms},
		{"a sleeper keeps one slice", objects.DecideClampVtime, in(0, 100*ms, 5*ms), 95 * ms},
		{"a recent runner keeps its tag", objects.DecideClampVtime, in(99*ms, 100*ms, 5*ms), 99 * ms},
		{"who is ahead stays ahead", objects.DecideClampVtime, in(200*ms, 100*ms, 5*ms), 200 * ms},
		{"a group that met another just now is not alone", objects.DecideIsAlone, in(now-ms, now), 0},
		{"nor one that met another within the starvation bound", objects.DecideIsAlone, in(now-1000*ms, now), 0},
		{"one that met nobody since is", objects.DecideIsAlone, in(now-1001*ms, now), 1},
		{"a meeting that another CPU's clock puts ahead is one", objects.DecideIsAlone, in(now+1, now), 0},
		{"who competes moves the clock", objects.DecideMovesClock, in(now-ms, now-5000*ms, now), 1},
		{"who is alone does not while others compete", objects.DecideMovesClock, in(now-5000*ms, now-ms, now), 0},
		{"but does if nobody competes", objects.DecideMovesClock, in(now-5000*ms, now-5000*ms, now), 1},

		{"the clamp holds where the clock wraps", objects.DecideClampVtime, in(math.MaxUint64, 2*ms, 5*ms), math.MaxUint64},
		{"the default weight costs what it takes", objects.DecideVtimeCost, in(8*ms, 100), 8 * ms},
		{"double weight costs half", objects.DecideVtimeCost, in(8*ms, 200), 4 * ms},
		{"the least weight", objects.DecideVtimeCost, in(8*ms, 1), 800 * ms},
		{"no weight is the least weight", objects.DecideVtimeCost, in(8*ms, 0), 800 * ms},

		{"a peer that just began", objects.DecideYieldsToPeers, in(standard, 2*ms-1), 0},
		{"a peer that computes for long", objects.DecideYieldsToPeers, in(standard, 2*ms), 1},
		{"a critical peer, too", objects.DecideYieldsToPeers, in(critical, 2*ms), 1},
		{"background yields to no peer", objects.DecideYieldsToPeers, in(backgr, 2*ms), 0},
		{"behind its peers by less than asked for", objects.DecideIsBehindPeers, in(91*ms, 99*ms, 100), 0},
		{"behind its peers by more", objects.DecideIsBehindPeers, in(91*ms, 99*ms+1, 100), 1},
		{"a light group has to be behind by more", objects.DecideIsBehindPeers, in(100*ms, 900*ms, 1), 0},
		{"and preempts if it is", objects.DecideIsBehindPeers, in(100*ms, 901*ms, 1), 1},
		{"ahead of its peers", objects.DecideIsBehindPeers, in(95*ms, 94*ms, 100), 0},
		{"behind its peers where the clock wraps", objects.DecideIsBehindPeers, in(math.MaxUint64, 9*ms, 100), 1},
		{"who woke runs as long as before", objects.DecideExpectedRun, in(ms), ms},
		{"but pays for no more than a slice", objects.DecideExpectedRun, in(6 * ms), 5 * ms},
		{"and for a slice if it never slept", objects.DecideExpectedRun, in(0), 5 * ms},

		{"behind by more than a slice", objects.DecideMayGoOn, in(94*ms, 100*ms, 100, 8*ms), 1},
		{"behind by a slice", objects.DecideMayGoOn, in(95*ms, 100*ms, 100, 8*ms), 0},
		{"behind, by its weight more than a slice", objects.DecideMayGoOn, in(97*ms, 100*ms, 200, 8*ms), 1},
		{"behind, and went on already", objects.DecideMayGoOn, in(94*ms, 100*ms, 100, 20*ms), 0},

		{"away a thread counts two slices later", objects.DecideAwayTag, in(100*ms, 100), 110 * ms},
		{"by its weight", objects.DecideAwayTag, in(100*ms, 1000), 101 * ms},
		{"a crowd's member waits its turn", objects.DecideIsStarving, in(now-200*ms, now-1, now), 0},
		{"anybody's wait ends", objects.DecideIsStarving, in(now-300*ms, now-1, now), 1},
		{"a tier that nobody served", objects.DecideIsStarving, in(now-50*ms, now-60*ms, now), 1},
		{"a newcomer of a tier that nobody served", objects.DecideIsStarving, in(now-49*ms, now-60*ms, now), 0},
		{"one that queued after the clock was read", objects.DecideIsStarving, in(now+ms, now-1, now), 0},
		{"a tier served after the clock was read", objects.DecideIsStarving, in(now-60*ms, now+ms, now), 0},
		{"one of a crowd has its turn", objects.DecideOwedByRescue, in(now-49*ms, now), 1},
		{"whose tier has no turn has a slice", objects.DecideOwedByRescue, in(now-50*ms, now), ms},
		{"a rescue at once where nothing higher waits", objects.DecideMayRescue, in(now-1, now, bit(false), 1), 1},
		{"the next rescue not yet", objects.DecideMayRescue, in(now-39*ms, now, bit(true), 1), 0},
		{"the next rescue now", objects.DecideMayRescue, in(now-40*ms, now, bit(true), 1), 1},
		{"a crowd is not served at once", objects.DecideMayRescue, in(now-9*ms, now, bit(true), 40), 0},
		{"a crowd is served sooner", objects.DecideMayRescue, in(now-10*ms, now, bit(true), 40), 1},
		{"a rescue after the clock was read", objects.DecideMayRescue, in(now+ms, now, bit(true), 40), 0},

		{"a heartbeat in time", objects.DecideIsStale, in(now-30*ms, now, 30*ms), 0},
		{"a heartbeat too old", objects.DecideIsStale, in(now-31*ms, now, 30*ms), 1},
		{"no dead-man", objects.DecideIsStale, in(0, now, 0), 0},
		{"a heartbeat written after the clock was read", objects.DecideIsStale, in(now+ms, now, 30*ms), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := policytestPolicyCall{In: c.in}
			if _, err := c.prog.Run(&ebpf.RunOptions{Context: &call, ContextOut: &call}); err != nil {
				t.Fatal(err)
			}
			if call.Out != c.want {
				t.Errorf("%v decided %d, want %d", c.in, call.Out, c.want)
			}
		})
	}
}

func in(args ...uint64) (out [4]uint64) {
	copy(out[:], args)
	return out
}

// What Go promises is what the kernel side was compiled with.
func TestBoundsAreThoseOfTheObject(t *testing.T) {
	spec, err := loadPolicytest()
	if err != nil {
		t.Fatal(err)
	}
	var bound, slice, starves uint64
	for name, v := range map[string]*uint64{"wait_bound_ns": &bound, "slice_ns": &slice, "tier_starves_ns": &starves} {
		if err := spec.Variables[name].Get(v); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
	}
	if time.Duration(bound) != WaitBound {
		t.Errorf("WaitBound is %s, the object's %s", WaitBound, time.Duration(bound))
	}
	if slice == 0 || starves <= slice {
		t.Errorf("a tier starves after %d ns, a slice lasts %d ns", starves, slice)
	}
}

// The numbers of the vocabulary are those of the object.
func TestTiersAreThoseOfTheObject(t *testing.T) {
	for _, c := range []struct {
		ours   tier.Tier
		theirs schedTemperTier
	}{
		{tier.Critical, schedTemperTierTEMPER_CRITICAL},
		{tier.System, schedTemperTierTEMPER_SYSTEM},
		{tier.Standard, schedTemperTierTEMPER_STANDARD},
		{tier.Background, schedTemperTierTEMPER_BACKGROUND},
		{tier.Count, schedTemperTierTEMPER_TIERS},
	} {
		if uint32(c.ours) != uint32(c.theirs) {
			t.Errorf("%s is %d here and %d in the object", c.ours, c.ours, c.theirs)
		}
	}
	for _, c := range []struct {
		ours   policy.Lend
		theirs schedTemperLend
	}{
		{policy.LendPerCore, schedTemperLendTEMPER_LEND_PER_CORE},
		{policy.LendLanding, schedTemperLendTEMPER_LEND_LANDING},
		{policy.LendWholeLayer, schedTemperLendTEMPER_LEND_WHOLE_LAYER},
	} {
		if uint32(c.ours) != uint32(c.theirs) {
			t.Errorf("%s is %d here and %d in the object", c.ours, c.ours, c.theirs)
		}
	}
}
