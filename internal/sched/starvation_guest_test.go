// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// Critical threads saturate every CPU; everybody else still runs within the
// bound, bound to a CPU or not, alone or in a crowd.
func TestNobodyStarves(t *testing.T) {
	requireGuest(t)
	s := attach(t, Config{})
	critical := testCgroup(t, "critical")
	groups := []policy.Group{planGroup(t, critical, policy.Group{Tier: tier.Critical})}
	var starved []string
	for _, rank := range []tier.Tier{tier.System, tier.Standard, tier.Background} {
		free := testCgroup(t, rank.String())
		groups = append(groups, planGroup(t, free, policy.Group{Tier: rank}))
		spinners(t, free, 2, -1)
		starved = append(starved, free)
		for cpu := range readTopology(t) {
			bound := testCgroup(t, fmt.Sprintf("%s-cpu%d", rank, cpu))
			groups = append(groups, planGroup(t, bound, policy.Group{Tier: rank}))
			spinners(t, bound, 2, cpu)
			starved = append(starved, bound)
		}
	}
	spinners(t, critical, 2*len(readTopology(t)), -1)
	apply(t, s, groups...)
	time.Sleep(settle)
	got := shares(t, 5*time.Second, append(starved, critical)...)
	for i, c := range starved {
		if got[i] == 0 {
			t.Errorf("%s never ran", filepath.Base(c))
		}
	}
	t.Logf("critical %.2f CPUs, others %.3f", got[len(got)-1], got[:len(got)-1])
	for rank, c := range readCounters(t, s) {
		t.Logf("%s: rescued %d, worst wait %s", tier.Tier(rank), c.Rescued, time.Duration(c.WorstWaitNs))
		if wait := time.Duration(c.WorstWaitNs); wait > WaitBound {
			t.Errorf("%s waited %s, the bound is %s", tier.Tier(rank), wait, WaitBound)
		}
		if tier.Tier(rank) != tier.Critical && c.Rescued == 0 {
			t.Errorf("%s was never rescued: the test saturates nothing", tier.Tier(rank))
		}
	}
	stillAttached(t, s)
}

// readCounters sums the scheduler's counters over the CPUs.
func readCounters(t *testing.T, s *Scheduler) (sum [tier.Count]schedTemperTierCounters) {
	t.Helper()
	for i := range sum {
		var perCPU []schedTemperTierCounters
		if err := s.maps["tier_counters"].Lookup(uint32(i), &perCPU); err != nil {
			t.Fatal(err)
		}
		for _, c := range perCPU {
			sum[i].Preemptions += c.Preemptions
			sum[i].Preempted += c.Preempted
			sum[i].Rescued += c.Rescued
			sum[i].WorstWaitNs = max(sum[i].WorstWaitNs, c.WorstWaitNs)
		}
	}
	return sum
}
