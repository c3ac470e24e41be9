// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// What a switch may cost beside limits of others, and below a limit that never
// binds, against one without limits on the node: ratios of instructions.
const (
	besideLimitsMax = 1.05
	belowLimitMax   = 1.4
)

// TestLimitCost measures a switch with none, 100 and 2,000 limited cgroups of
// which four are at their limit, on another CPU.
func TestLimitCost(t *testing.T) {
	requireVirtualTime(t)
	s := attach(t, Config{})
	dir, own := testCgroup(t, "limits"), testCgroup(t, "own")
	write(t, dir, "cgroup.subtree_control", "+cpu")
	apply(t, s,
		planGroup(t, dir, policy.Group{Tier: tier.Standard}),
		planGroup(t, own, policy.Group{Tier: tier.Standard}))
	move(t, own)
	t.Cleanup(func() { move(t, cgroupDir) })
	none := leastSwitch(t)
	t.Logf("no limits: %s", none)
	made := 0
	for _, n := range []int{100, 2000} {
		for ; made < n; made++ {
			limited := testCgroup(t, fmt.Sprintf("limits/%d", made))
			write(t, limited, "cpu.max", "10000 100000")
			if made < 4 {
				spinners(t, limited, 2, 3)
			}
		}
		cost := leastSwitch(t)
		ratio := float64(cost) / float64(none)
		t.Logf("%d limits: %s, %.3f", n, cost, ratio)
		if ratio > besideLimitsMax {
			t.Errorf("a switch beside %d limits costs %.3f of one without, want at most %.2f", n, ratio, besideLimitsMax)
		}
	}
	write(t, own, "cpu.max", "400000 100000")
	cost := leastSwitch(t)
	ratio := float64(cost) / float64(none)
	t.Logf("below a limit: %s, %.3f", cost, ratio)
	if ratio > belowLimitMax {
		t.Errorf("a switch below a limit costs %.3f of one without, want at most %.2f", ratio, float64(belowLimitMax))
	}
	stillAttached(t, s)
}

// leastSwitch is the least of a few: what else the kernel does meanwhile, as after
// many cgroups were made, only adds.
func leastSwitch(t *testing.T) time.Duration {
	t.Helper()
	least := pipeSwitch(t, 0)
	for range 3 {
		least = min(least, pipeSwitch(t, 0))
	}
	return least
}

// move puts this process into a cgroup.
func move(t *testing.T, cgroup string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
}
