// SPDX-License-Identifier: Apache-2.0

package node

import (
	"hash/fnv"
	"net"
	"strconv"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/chain"
	"github.com/temper-sched/temper/internal/bench/load"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// manyCgroups is a node that has every cgroup, each with an ID of its own.
type manyCgroups struct{}

func (manyCgroups) ID(path string) (uint64, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))
	return h.Sum64(), nil
}

func TestEveryKindWithAClientHasItsSoftware(t *testing.T) {
	protocols := map[string]load.Protocol{"memcached": load.Memcached, "redis": load.Redis, chainKind: load.HTTP}
	for _, kind := range bench.Kinds() {
		n := &node{spec: Spec{Scenario: bench.Scenario{Primary: bench.Primary{Kind: kind.Name}}}}
		sw, err := n.software()
		if !kind.Server || kind.Tool {
			if err == nil {
				t.Errorf("%s has a client of its own, or none, and has software of ours", kind.Name)
			}
			continue
		}
		if err != nil || sw.start == nil || sw.protocol != protocols[kind.Name] {
			t.Errorf("%s: speaks %q, %v; the table of this test says %q", kind.Name, sw.protocol, err, protocols[kind.Name])
			continue
		}
		if _, port, err := net.SplitHostPort(sw.addr); err != nil {
			t.Error(err)
		} else if _, err := strconv.Atoi(port); err != nil {
			t.Error(err)
		}
		if (sw.protocol == load.HTTP) != (len(sw.targets) > 0) {
			t.Errorf("%s: targets %v", kind.Name, sw.targets)
		}
	}
}

func TestEachServiceOfAChainIsCriticalAndHasNoFence(t *testing.T) {
	var machine topology.Topology
	for i := range 4 {
		machine.CPUs = append(machine.CPUs, topology.CPU{ID: i, Core: i, Online: true})
	}
	n := &node{
		spec: Spec{Scenario: bench.Scenario{Instrument: true, Primary: bench.Primary{Kind: chainKind, Threads: 1, RequestMilliCPU: 150}}},
		tree: &tree{weights: map[string]int{}},
	}
	var err error
	if n.layout, err = layOut(n.spec.Scenario, machine); err != nil {
		t.Fatal(err)
	}
	plan, err := config.Parse("plan.yaml", []byte(n.plan()), config.Node{Topology: machine, Cgroups: manyCgroups{}})
	if err != nil {
		t.Fatal(err)
	}
	tiers := map[string]tier.Tier{}
	for _, g := range plan.Groups {
		tiers[g.Cgroup] = g.Tier
		if len(g.Fence) > 0 {
			t.Errorf("%s has the fence %v", g.Cgroup, g.Fence)
		}
	}
	pods, services := n.at(bench.Step{Density: 2}), chain.Services()
	if len(pods) != len(services)+2 {
		t.Fatalf("%d pods for %d services and 2 spinners", len(pods), len(services))
	}
	for i, s := range services {
		if pods[i].Name != s.Name || pods[i].Tier != tier.Critical.String() || tiers[pods[i].path] != tier.Critical {
			t.Errorf("service %s: pod %+v is %v in the plan", s.Name, pods[i], tiers[pods[i].path])
		}
	}
}
