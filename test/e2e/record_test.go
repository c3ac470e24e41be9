// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/bench/run"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/test/e2e/place"
)

const recordKernel = "7.2"

// campaign is what becomes records: one boot, on which the engine is attached
// and in safe mode by turns.
type campaign struct {
	*cluster
	scenario bench.Scenario
	arms     []bench.Arm
	seeds    int
	commit   string         // that all was built of
	of       *bench.Cluster // what the node is
	critical string         // the critical pod's cgroup
	idle     float64        // what the first window said of the node before it
	records  []bench.Record
	live     string // the arm that is in force
}

// TestRecord measures memcached's tail on a real node, attached and in safe
// mode. TEMPER_RECORD is the directory that receives the records: make e2e-record.
func TestRecord(t *testing.T) {
	dir := os.Getenv("TEMPER_RECORD")
	if dir == "" {
		t.Skip("needs a directory for records: make e2e-record")
	}
	c := &campaign{}
	c.read(t)
	c.cluster = startCluster(t, machineSpec{kernel: recordKernel, topology: c.scenario.Topology, virtual: true})
	c.commit = strings.TrimSpace(c.host(t, `echo "$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD || echo +)"`))
	c.prepare(t)
	defer c.keep(t, dir) // what was measured was measured, whatever came then
	for _, v := range c.visits() {
		c.scale(t, v.density)
		for _, seed := range v.seeds {
			for place, arm := range bench.Rotate(c.arms, seed) {
				c.measure(t, arm, seed, seed*len(c.arms)+place, v.density)
			}
		}
	}
}

// visit is a time at one density, and the seeds that are measured then.
type visit struct {
	density int
	seeds   []int // from 0
}

// visits climbs the ladder and comes back: at its foot one half of the seeds is
// measured before, and the other afterwards.
func (c *campaign) visits() []visit {
	var all []int
	for i := range c.seeds {
		all = append(all, i)
	}
	half := len(all) / 2
	up, top := c.scenario.Densities[:len(c.scenario.Densities)-1], c.scenario.Densities[len(c.scenario.Densities)-1]
	var out []visit
	for _, d := range up {
		out = append(out, visit{d, all[:half]})
	}
	out = append(out, visit{top, all})
	for _, d := range slices.Backward(up) {
		out = append(out, visit{d, all[half:]})
	}
	return out
}

func (c *campaign) read(t *testing.T) {
	t.Helper()
	const file = "testdata/record.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if c.scenario, err = bench.ParseScenario(file, text); err != nil {
		t.Fatal(err)
	}
	c.seeds = c.scenario.Seeds
	if c.arms, err = bench.ParseArms(c.scenario.Arms); err != nil {
		t.Fatal(err)
	}
}

// prepare installs the product, keeps the instrument's CPU out of fences, and
// starts what is measured.
func (c *campaign) prepare(t *testing.T) {
	t.Helper()
	c.install(t)
	c.host(t, `kubectl -n temper-system patch configmap temper-agent --type=merge -p '{"data":{"agent.yaml":"mode: enforce\nreservedCPUs: \"`+c.instrument(t)+`\"\n"}}'
kubectl -n temper-system rollout restart daemonset/temper-agent`)
	c.rolledOut(t)
	c.follow(t, "critical")
	c.host(t, "kubectl apply -f test/e2e/testdata/record-pods.yaml && kubectl wait --for=condition=Ready pod/memcached --timeout=10m")
	uid := c.host(t, "kubectl get pod memcached -o 'jsonpath={.metadata.uid}'")
	c.critical = "/kubepods/burstable/pod" + uid
	c.live = "temper"
	c.want(t, attached, "Attached")
	c.of = c.describe(t)
	eventually(t, time.Minute, "memcached is critical", func() error {
		got, err := c.explain("memcached")
		if err == nil && got.Tier != tier.Critical {
			err = fmt.Errorf("explain says %+v", got)
		}
		return err
	})
}

// instrument is the last CPU.
func (c *campaign) instrument(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.node.sh(t, "echo $(($(nproc) - 1))"))
}

// scale sees to it that so many spinner pods run.
func (c *campaign) scale(t *testing.T, spinners int) {
	t.Helper()
	c.host(t, fmt.Sprintf("kubectl scale deployment/spinners --replicas=%d", spinners))
	eventually(t, 10*time.Minute, fmt.Sprintf("%d spinners run", spinners), func() error {
		phases, err := c.try("kubectl get pods -l e2e=spinner -o 'jsonpath={.items[*].status.phase}'")
		if err == nil && phases != strings.TrimSpace(strings.Repeat("Running ", spinners)) {
			err = fmt.Errorf("phases are %q", phases)
		}
		return err
	})
}

// engage puts an arm in force.
func (c *campaign) engage(t *testing.T, arm bench.Arm) {
	t.Helper()
	if c.live == arm.Name {
		return
	}
	if arm.Ops == "" {
		c.follow(t, "safe-mode-on")
		c.want(t, safe, "SafeMode")
	} else {
		c.follow(t, "safe-mode-off")
		c.want(t, attached, "Attached")
	}
	c.live = arm.Name
}

// measure takes one window.
func (c *campaign) measure(t *testing.T, arm bench.Arm, seed, order, density int) {
	t.Helper()
	c.engage(t, arm)
	step := slices.Index(c.scenario.Densities, density)
	spec, err := json.Marshal(node.Standing{
		Scenario: c.scenario, Seed: uint64(seed + 1), Step: step, Critical: c.critical, Addr: "127.0.0.1:11211", IdleBefore: c.idle,
	})
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	// Within the window the client keeps its CPU busy by itself.
	said, err := c.node.try(t.Context(), strings.NewReader(string(spec)), "/bin/sh", "-c",
		fmt.Sprintf("busy=$(pidof %s); kill -STOP $busy; %s standing; code=$?; kill -CONT $busy; exit $code", place.Busy, place.Lab))
	if err != nil {
		t.Fatal(err)
	}
	r := bench.Record{
		Scenario: c.scenario, Arm: arm, Seed: uint64(seed + 1), Order: order, Started: started.UTC(), Host: run.HostOf(started),
		Plan:    bench.Plan{Arms: c.scenario.Arms, SeedFirst: 1, Seeds: c.seeds},
		Machine: bench.Machine{KernelName: recordKernel, Topology: c.scenario.Topology},
	}
	for events := json.NewDecoder(strings.NewReader(said)); ; {
		var e node.Event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read %q: %v", said, err)
		}
		switch {
		case e.Hello != nil:
			r.Machine.Kernel, r.Machine.Cmdline = e.Hello.Kernel, e.Hello.Cmdline
		case e.Window != nil:
			r.Window = *e.Window
		default:
			t.Log(e.Progress)
		}
	}
	c.idle = r.Window.IdleBefore
	c.records = append(c.records, r)
	r.Machine.Clock, r.Machine.Cluster = bench.ClockOpen, c.of
	p, verdict := r.Window.Primary, bench.Judge(&r)
	t.Logf("%s, seed %d, %d spinners: p50 %v, p99 %v, longest %v; lag p99 %v; background %.2f CPUs; void for %q", arm.Name, r.Seed, density,
		p.Latency.Quantile(.5), p.Latency.Quantile(.99), p.Latency.Max(), p.Lag.Quantile(.99), r.Window.Ledger.BackgroundCPUs(), verdict.Reasons)
}

// keep writes the records, once it is known what all of them ran on.
func (c *campaign) keep(t *testing.T, dir string) {
	t.Helper()
	sum, err := run.Hash(c.spec.lab)
	if err != nil {
		t.Fatal(err)
	}
	c.node.powerOff()
	machine := run.MachineOf(c.node.provenance)
	if machine.Clock != bench.ClockPerVCPU {
		t.Fatalf("the vCPUs' clock is %s (%s), want one for each", machine.Clock, machine.ClockNote)
	}
	machine.Clock, machine.Cluster = bench.ClockOpen, c.of
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, bench.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, r := range c.records {
		m := machine
		m.Kernel, m.KernelName, m.Cmdline, m.Topology = r.Machine.Kernel, r.Machine.KernelName, r.Machine.Cmdline, r.Machine.Topology
		r.Machine, r.Campaign, r.Commit = m, filepath.Base(dir), c.commit
		r.Build = bench.Build{Go: runtime.Version(), NodeSHA256: sum}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		if !r.Verdict.Valid {
			t.Logf("void: %s: %s", r.ID(), strings.Join(r.Verdict.Reasons, "; "))
		}
		if err := bench.WriteRecord(f, &r); err != nil {
			t.Fatal(err)
		}
	}
}

// describe asks the API server what the node runs.
func (c *campaign) describe(t *testing.T) *bench.Cluster {
	t.Helper()
	info := "kubectl get node " + place.NodeName + " -o 'jsonpath={.status.nodeInfo."
	return &bench.Cluster{
		Kubelet: c.host(t, info+"kubeletVersion}'"), Runtime: c.host(t, info+"containerRuntimeVersion}'"),
		Agent:  c.host(t, "kubectl -n temper-system get pods -l app.kubernetes.io/name=temper-agent -o 'jsonpath={.items[0].status.containerStatuses[0].imageID}'"),
		Config: strings.Join(strings.Split(strings.TrimSpace(c.host(t, "kubectl -n temper-system get configmap temper-agent -o 'jsonpath={.data.agent\\.yaml}'")), "\n"), ", "),
	}
}
