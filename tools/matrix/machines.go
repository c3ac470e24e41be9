// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// machine is where some tests run. Without a kernel it is this one.
type machine struct {
	name     string
	packages []string // none: all but those below
	unraced  bool     // not watched by the race detector
	only     string   // tests to run, as for go test -run
	without  string   // tests to leave out, as for go test -skip
	lacks    bool     // tests may skip what they need of a guest
	kube     bool     // beside a real control plane

	kernel, topology string
	virtual          bool   // in virtual time: exact, and no matter what else runs
	insnNs           int    // what an instruction takes, 0: 1 ns; more of it is less work for the emulator
	expect           string // the reason for which the kernel must be refused
}

// Packages whose tests need a kernel with sched_ext, or a server in a guest.
var (
	engine = []string{"./internal/sched", "./cmd/temper", "./cmd/temper-agent"}
	server = []string{"./internal/bench/load"}
	node   = []string{"./internal/bench/node", "./internal/bench/run"}
	kube   = []string{"./test/kube"}
	// They compute in one thread: the race detector would find nothing, in 14 times the time.
	figures = []string{"./internal/bench/ladder", "./internal/bench/report", "./internal/bench/stats", "./internal/bench/targets", "./internal/bench/verify"}
	// A real kubelet takes too long for this: make e2e.
	apart = []string{"./test/e2e"}
)

// machines are in the order in which a fault shows soonest.
func machines() []machine {
	const (
		shares  = "TestBoundCriticalWakesAsFast|TestLightPeer|TestSidecarOfOwnCPU|TestRescueOfALightPod|TestLending|TestReturnsToFence|TestIdleFenceIsLent|TestWeights|TestBatchPodsShareAlike|TestAloneSavesNothing|TestNobodyStarves|TestBusyKernelThread"
		delays  = "(Thread|Peer|Wakeup|Softirq)HoldsNobodyUp|TestSwitchCost|TestProbeCost" // to microseconds
		older   = "(Thread|Peer|Softirq)HoldsNobodyUp|TestLending|TestLimitPaysForSwitches"
		fences  = "TestIdleFenceIsLent|TestSiblingOfCriticalStaysFree|TestCriticalThreadsKeepApart|TestRescuedThreadGetsSomewhere"
		limits  = "TestLimitHolds|TestLimitPaysForSwitches|TestLimitsNest|TestLimitChanges|TestLeavesItsLimit|TestLimitComesAbove|TestBadLimitsAreRefused|TestChangeOfClass|TestAffinityChanges|TestParkedThreadsObey|TestLimitCost"
		locks   = "TestParkedThreadsHoldNoLock"
		refused = "TestRefusedKernel"
		lives   = "TestGuestAttach|TestGuestStoppedAgent|TestGuestUpgrade|TestGuestEject|TestGuestSafeMode|TestGuestHotplug"
	)
	return []machine{
		{name: "here"},
		{name: "here-figures", packages: figures, unraced: true},
		{name: "here-engine", packages: slices.Concat(engine, server, node), lacks: true},
		{name: "kube", packages: kube, kube: true},
		{name: "7.2", packages: slices.Concat(engine, server), without: "TestSoak", kernel: "7.2", topology: "1s4c1t"},
		{name: "7.2-virtual-delays", packages: engine[:1], only: delays, kernel: "7.2", topology: "1s4c1t", virtual: true},
		{name: "7.2-virtual-limits", packages: engine[:1], only: limits, kernel: "7.2", topology: "1s4c1t", virtual: true, insnNs: 4},
		{name: "7.2-virtual-shares", packages: engine[:1], only: shares, kernel: "7.2", topology: "1s4c1t", virtual: true, insnNs: 4},
		{name: "6.18-virtual", packages: engine[:1], only: older, kernel: "6.18", topology: "1s4c1t", virtual: true},
		{name: "7.2-virtual-llcs", packages: engine[:1], only: "TestWeightsAcrossLLCs", kernel: "7.2", topology: "2s2c1t", virtual: true, insnNs: 4},
		{name: "7.2-virtual-smt", packages: engine[:1], only: fences, kernel: "7.2", topology: "1s2c2t", virtual: true, insnNs: 4},
		{name: "7.2-virtual-node", packages: node, kernel: "7.2", topology: "1s4c1t", virtual: true},
		{name: "7.2-virtual-locks", packages: engine[:1], only: locks, kernel: "7.2", topology: "1s4c1t", virtual: true, insnNs: 4},
		{name: "7.2-virtual-soak", packages: engine[:1], only: "TestSoak", kernel: "7.2", topology: "1s4c1t", virtual: true, insnNs: 16},
		{name: "6.18-agent", packages: engine[2:], only: lives, kernel: "6.18", topology: "1s4c1t"},
		{name: "6.18", packages: engine[:2], without: "TestSoak|TestProbe|Storm", kernel: "6.18", topology: "1s4c1t"},
		{name: "6.12", packages: engine[1:], only: refused, expect: "NoSchedExt", kernel: "6.12", topology: "1s2c1t"},
		{name: "7.2-badbtf", packages: engine[1:], only: refused, expect: "KfuncBTFMalformed", kernel: "7.2-badbtf", topology: "1s2c1t"},
	}
}

// goTest is the machine's command line. On this machine the race detector
// watches; guests get static binaries, one package at a time.
func (m machine) goTest(inguest string) []string {
	args := []string{"go", "test", "-json"}
	if m.kernel == "" {
		args = append(args, "-timeout", "20m")
		if !m.unraced {
			args = append(args, "-race")
		}
	} else {
		exec := fmt.Sprintf("%s -kernel %s -topology %s -mode %s -packages memcached,redis-server,stress-ng -timeout 29m",
			inguest, m.kernel, m.topology, m.mode())
		if m.insnNs > 0 {
			exec += fmt.Sprintf(" -instruction-ns %d", m.insnNs)
		}
		// The same bytes from every clone: virtual time repeats, to the last digit, with the same
		// bytes alone.
		args = append(args, "-trimpath", "-ldflags=-buildid=", "-count=1", "-p", "1", "-timeout", "30m", "-exec", exec)
	}
	if m.only != "" {
		args = append(args, "-run", m.only)
	}
	if m.without != "" {
		args = append(args, "-skip", m.without)
	}
	return append(args, m.packages...)
}

func (m machine) mode() string {
	if m.virtual {
		return "deterministic"
	}
	return "functional"
}

func (m machine) env() []string {
	env := []string{"CGO_ENABLED=1"} // the race detector's
	if m.kernel != "" {
		env = []string{"CGO_ENABLED=0"}
	}
	if !m.lacks {
		env = append(env, "REQUIRE_ALL=1")
	}
	if m.expect != "" {
		env = append(env, "TEMPER_EXPECT="+m.expect)
	}
	return env
}

// hostPackages lists the packages that no other machine is for.
func hostPackages(ctx context.Context) ([]string, error) {
	text, err := exec.CommandContext(ctx, "go", "list", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	elsewhere := slices.Concat(figures, engine, server, node, kube, apart)
	return slices.DeleteFunc(strings.Fields(string(text)), func(pkg string) bool {
		return slices.ContainsFunc(elsewhere, func(e string) bool { return strings.HasSuffix(pkg, e[1:]) })
	}), nil
}
