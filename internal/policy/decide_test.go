// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// Machines by their caches: of each, how many threads its cores have.
type (
	llc  []int
	numa []llc
)

// uniform is a cache of n cores with threads each.
func uniform(n, threads int) llc { return slices.Repeat(llc{threads}, n) }

// computer numbers CPUs through: cores, caches and nodes one after the other.
func computer(nodes ...numa) topology.Topology {
	var top topology.Topology
	coreN, llcN := 0, 0
	for node, llcs := range nodes {
		for _, l := range llcs {
			for _, threads := range l {
				for range threads {
					top.CPUs = append(top.CPUs, topology.CPU{ID: len(top.CPUs), Core: coreN, LLC: llcN, Node: node, Online: true})
				}
				coreN++
			}
			llcN++
		}
	}
	return top
}

// gold is a critical pod; its number is its age, its UID's and its cgroup's.
func gold(n int, milli int64, exclusive ...int) Pod {
	return Pod{
		UID: fmt.Sprintf("uid-%04d", n), Created: time.Unix(int64(n), 0), Tier: tier.Critical,
		MilliCPU: milli, Cgroup: fmt.Sprintf("/kubepods/pod%d", n), ID: uint64(n), Exclusive: exclusive,
	}
}

// prevFences is a plan as it is read back, without paths: fences by id.
func prevFences(fences map[int]string) Plan {
	var p Plan
	for id, list := range fences {
		cpus, err := topology.ParseList(list)
		if err != nil {
			panic(err)
		}
		p.Groups = append(p.Groups, Group{ID: uint64(id), Tier: tier.Critical, Fence: cpus})
	}
	return p
}

// shown is each group's fence, or why it has none.
func shown(p Plan) map[string]string {
	m := map[string]string{}
	for _, g := range p.Groups {
		m[g.Cgroup] = topology.FormatList(g.Fence) + g.NotFenced
	}
	return m
}

func TestDecideFences(t *testing.T) {
	twoByTwo := computer(numa{uniform(4, 1), uniform(4, 1)}, numa{uniform(4, 1), uniform(4, 1)})
	hybrid := computer(numa{llc{2, 2, 1, 1, 1, 1}})
	offline := smt(4)
	offline.CPUs[7].Online = false
	const others = ": older critical pods, reserved and exclusive CPUs and one core for the rest of the node come first"
	for name, c := range map[string]struct {
		top      topology.Topology
		reserved []int
		prev     map[int]string
		pods     []Pod
		want     map[int]string // by the pod's number
	}{
		"a request in whole cores, away from CPU 0": {
			top: smt(4), pods: []Pod{gold(1, 1000)}, want: map[int]string{1: "6-7"},
		},
		"a fraction is rounded up": {top: smt(4), pods: []Pod{gold(1, 2001)}, want: map[int]string{1: "4-7"}},
		"a thousandth":             {top: smt(4), pods: []Pod{gold(1, 1)}, want: map[int]string{1: "6-7"}},
		"no request": {
			top: smt(4), pods: []Pod{gold(1, 0)},
			want: map[int]string{1: "it requests no CPU, and a fence is as large as the request"},
		},
		"one core": {
			top: smt(1), pods: []Pod{gold(1, 500)},
			want: map[int]string{1: "it needs 1 CPU in whole cores, 0 are left" + others},
		},
		"the newest does not fit": {
			top: smt(3), pods: []Pod{gold(3, 2000), gold(1, 1500), gold(2, 500)},
			want: map[int]string{1: "4-5", 2: "2-3", 3: "it needs 2 CPUs in whole cores, 0 are left" + others},
		},
		"a smaller, newer one still fits": {
			top: smt(3), pods: []Pod{gold(1, 6000), gold(2, 500)},
			want: map[int]string{1: "it needs 6 CPUs in whole cores, 4 are left" + others, 2: "4-5"},
		},
		"created in the same second": {
			top: smt(2), pods: []Pod{{UID: "b", Cgroup: "/b", ID: 8, Tier: tier.Critical, MilliCPU: 1}, {UID: "a", Cgroup: "/kubepods/pod7", ID: 7, Tier: tier.Critical, MilliCPU: 1}},
			want: map[int]string{7: "2-3"},
		},
		"in one cache, the fullest that holds it": {
			top: twoByTwo, prev: map[int]string{1: "8-9"}, pods: []Pod{gold(1, 2000), gold(2, 2000), gold(3, 3000)},
			want: map[int]string{1: "8-9", 2: "10-11", 3: "13-15"},
		},
		"in one node where no cache holds it": {
			top: twoByTwo, prev: map[int]string{1: "12-15"}, pods: []Pod{gold(1, 4000), gold(2, 6000)},
			want: map[int]string{1: "12-15", 2: "2-7"},
		},
		"over nodes where none holds it": {
			top: twoByTwo, pods: []Pod{gold(1, 10_000)}, want: map[int]string{1: "6-15"},
		},
		"it stays": {
			top: smt(6), prev: map[int]string{2: "2-3", 3: "6-7"}, pods: []Pod{gold(1, 1000), gold(2, 1000), gold(3, 1000)},
			want: map[int]string{1: "10-11", 2: "2-3", 3: "6-7"},
		},
		"it grows where it is": {
			top: twoByTwo, prev: map[int]string{1: "0-1"}, pods: []Pod{gold(1, 4000)}, want: map[int]string{1: "0-3"},
		},
		"it grows on its node": {
			top: twoByTwo, prev: map[int]string{1: "0-3"}, pods: []Pod{gold(1, 5000)}, want: map[int]string{1: "0-3,7"},
		},
		"it shrinks where it is": {
			top: smt(4), prev: map[int]string{1: "2-5"}, pods: []Pod{gold(1, 2000)}, want: map[int]string{1: "4-5"},
		},
		"a sibling went offline": {
			top: offline, prev: map[int]string{1: "6-7", 2: "2-3"}, pods: []Pod{gold(1, 2000), gold(2, 2000)},
			want: map[int]string{1: "4-5", 2: "2-3"},
		},
		"an older pod comes late": {
			top: smt(3), prev: map[int]string{2: "2-3", 3: "4-5"}, pods: []Pod{gold(1, 2000), gold(2, 2000), gold(3, 2000)},
			want: map[int]string{1: "4-5", 2: "2-3", 3: "it needs 2 CPUs in whole cores, 0 are left" + others},
		},
		"nobody goes for a pod that does not fit anyway": {
			top: smt(3), prev: map[int]string{2: "4-5"}, pods: []Pod{gold(1, 5000), gold(2, 2000)},
			want: map[int]string{1: "it needs 5 CPUs in whole cores, 4 are left" + others, 2: "4-5"},
		},
		"fences that overlap in what was read back": {
			top: smt(4), prev: map[int]string{1: "2-3", 2: "2-3"}, pods: []Pod{gold(1, 2000), gold(2, 2000)},
			want: map[int]string{1: "2-3", 2: "6-7"},
		},
		"hybrid: fast cores first": {
			top: hybrid, pods: []Pod{gold(1, 1000), gold(2, 1000), gold(3, 1000)},
			want: map[int]string{1: "2-3", 2: "0-1", 3: "7"},
		},
		"hybrid: no core beyond the need": {
			top: hybrid, prev: map[int]string{1: "4-5"}, pods: []Pod{gold(1, 3000)}, want: map[int]string{1: "2-3,5"},
		},
		"reserved CPUs, and so their cores": {
			top: smt(4), reserved: []int{7, 0}, pods: []Pod{gold(1, 4000), gold(2, 1000)},
			want: map[int]string{1: "2-5", 2: "it needs 1 CPU in whole cores, 0 are left" + others},
		},
		"exclusive CPUs are the fence": {
			top: smt(4), prev: map[int]string{1: "4-5", 2: "2-3"}, pods: []Pod{gold(1, 2000, 2, 3), gold(2, 1000)},
			want: map[int]string{1: "2-3", 2: "6-7"},
		},
		"exclusive CPUs that split a core": {
			top: smt(4), pods: []Pod{gold(1, 2000, 3, 4), gold(2, 2000)},
			want: map[int]string{1: "its exclusive CPUs 3-4 are not whole cores that it has alone", 2: "6-7"},
		},
		"exclusive CPUs of two": {
			top: smt(4), pods: []Pod{gold(1, 2000, 4, 5, 6, 7), gold(2, 2000, 4, 5)},
			want: map[int]string{
				1: "its exclusive CPUs 4-7 are not whole cores that it has alone",
				2: "its exclusive CPUs 4-5 are not whole cores that it has alone",
			},
		},
		"exclusive and reserved": {
			top: smt(4), reserved: []int{4}, pods: []Pod{gold(1, 2000, 4, 5)},
			want: map[int]string{1: "its exclusive CPUs 4-5 are not whole cores that it has alone"},
		},
		"exclusive and absent": {
			top: smt(4), pods: []Pod{gold(1, 2000, 8, 9)},
			want: map[int]string{1: "its exclusive CPUs 8-9 are not whole cores that it has alone"},
		},
		"all CPUs exclusive": {
			top: smt(2), pods: []Pod{gold(1, 2000, 0, 1), gold(2, 2000, 2, 3)},
			want: map[int]string{1: "0-1", 2: "its exclusive CPUs 2-3 are 1 core, 0 are left of 2: one stays with the rest of the node"},
		},
		"the core that stays is nobody's": {
			top: smt(3), pods: []Pod{gold(1, 2000), gold(2, 2000), {UID: "s", Cgroup: "/s", ID: 9, Tier: tier.Standard, Exclusive: []int{4, 5}}},
			want: map[int]string{1: "2-3", 2: "it needs 2 CPUs in whole cores, 0 are left" + others},
		},
	} {
		t.Run(name, func(t *testing.T) {
			obs := Observation{Topology: c.top, Pods: c.pods, Reserved: c.reserved}
			got := shown(Decide(prevFences(c.prev), obs))
			for n, want := range c.want {
				if fence := got[fmt.Sprintf("/kubepods/pod%d", n)]; fence != want {
					t.Errorf("pod %d: %s\nwant %s", n, fence, want)
				}
			}
		})
	}
}

// What the kernel has no room for is refused whole: a plan never has more.
func TestDecideCapsFences(t *testing.T) {
	obs := Observation{Topology: smt(300)}
	for i := range 280 {
		obs.Pods = append(obs.Pods, gold(280-i, 1000))
	}
	plan := Decide(Plan{}, obs)
	for _, g := range plan.Groups {
		if fenced := len(g.Fence) > 0; fenced != (g.ID <= MaxFences) || fenced != (g.NotFenced == "") {
			t.Errorf("pod %d, 1 is the oldest: fence %v, %q", g.ID, g.Fence, g.NotFenced)
		}
	}
	if diff := cmp.Diff(plan, Decide(plan, obs)); diff != "" {
		t.Errorf("not a fixed point:\n%s", diff)
	}
	if diff := cmp.Diff(plan, Fit(plan, obs.Topology)); diff != "" {
		t.Errorf("Fit takes from it:\n%s", diff)
	}
}

func TestDecideGroups(t *testing.T) {
	web := Pod{UID: "w", Created: time.Unix(5, 0), Tier: tier.Standard, MilliCPU: 4000, Cgroup: "/kubepods/burstable/podw", ID: 20}
	defaults := []Group{
		{Cgroup: "/kubepods", ID: 1, Tier: tier.Standard, EachChild: true},
		{Cgroup: "/kubepods/besteffort", ID: 2, Tier: tier.Background, EachChild: true},
	}
	again := gold(30, 1000)
	again.UID = "z-the-same-cgroup"
	notYet := gold(31, 1000)
	notYet.Cgroup, notYet.ID = "", 0
	got := Decide(Plan{Lend: LendWholeLayer}, Observation{
		Topology: smt(4), Defaults: defaults, Lend: LendLanding, CPUMax: CPUMaxRefuse,
		Pods: []Pod{again, notYet, gold(30, 1000), web, {UID: "d", Cgroup: "/kubepods", ID: 1}},
	})
	want := Plan{Lend: LendLanding, CPUMax: CPUMaxRefuse, Groups: []Group{
		defaults[0],
		defaults[1],
		{Cgroup: web.Cgroup, ID: 20, Tier: tier.Standard},
		{Cgroup: "/kubepods/pod30", ID: 30, Tier: tier.Critical, Fence: []int{6, 7}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// randomNode is a machine of up to 4 nodes; some CPUs are offline, some cores
// have two threads, and ids have gaps.
func randomNode(r *rand.Rand) topology.Topology {
	threads := 1 + r.IntN(2)
	mixed := r.IntN(4) == 0
	nodes := make([]numa, 1+r.IntN(4))
	for n := range nodes {
		for range 1 + r.IntN(3) {
			l := uniform(1+r.IntN(5), threads)
			for i := range l {
				if mixed {
					l[i] = 1 + r.IntN(2)
				}
			}
			nodes[n] = append(nodes[n], l)
		}
	}
	top := computer(nodes...)
	stride := 1 + r.IntN(2)
	for i := range top.CPUs {
		top.CPUs[i].ID *= stride
		if r.IntN(20) == 0 && i > 0 {
			top.CPUs[i] = topology.CPU{ID: top.CPUs[i].ID, Core: 1000 + i}
		}
	}
	return top
}

// randomPods are pods of which some hold CPUs exclusively, rightly or not.
func randomPods(r *rand.Rand, top topology.Topology) []Pod {
	var pods []Pod
	online := top.Online()
	for _, n := range r.Perm(40)[:r.IntN(20)] {
		p := gold(n, int64(r.IntN(6000)))
		if r.IntN(4) == 0 {
			p.Tier = tier.Standard
		}
		if r.IntN(6) == 0 {
			for range 1 + r.IntN(2) {
				p.Exclusive = append(p.Exclusive, top.Siblings(online[r.IntN(len(online))])...)
			}
			if r.IntN(3) == 0 {
				p.Exclusive = p.Exclusive[1:]
			}
		}
		pods = append(pods, p)
	}
	return pods
}

func randomObservation(r *rand.Rand) Observation {
	obs := Observation{Topology: randomNode(r)}
	obs.Pods = randomPods(r, obs.Topology)
	if r.IntN(3) == 0 {
		obs.Reserved = obs.Topology.Online()[:1]
	}
	return obs
}

// FuzzDecide checks what holds for every node, whatever was in force before.
func FuzzDecide(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		obs := randomObservation(r)
		prev := Decide(Plan{}, Observation{Topology: obs.Topology, Pods: randomPods(r, obs.Topology)})
		plan := Decide(prev, obs)
		if problems := Validate(plan, obs.Topology); len(problems) > 0 {
			t.Fatalf("not valid: %+v", problems)
		}
		if diff := cmp.Diff(plan, Fit(plan, obs.Topology)); diff != "" {
			t.Fatalf("Fit takes from it:\n%s", diff)
		}
		if diff := cmp.Diff(plan, Decide(plan, obs)); diff != "" {
			t.Fatalf("not a fixed point:\n%s", diff)
		}
		r.Shuffle(len(obs.Pods), func(i, j int) { obs.Pods[i], obs.Pods[j] = obs.Pods[j], obs.Pods[i] })
		if diff := cmp.Diff(plan, Decide(prev, obs)); diff != "" {
			t.Fatalf("the order of pods matters:\n%s", diff)
		}
		checkFences(t, plan, obs)
		checkArrival(t, plan, obs)
	})
}

// checkFences: enough but no core too many, nobody else's CPUs, and a reason
// for each critical pod that has none.
func checkFences(t *testing.T, plan Plan, obs Observation) {
	t.Helper()
	byUID := map[uint64]Pod{}
	owner := map[int]uint64{}
	for _, p := range obs.Pods {
		byUID[p.ID] = p
		for _, id := range p.Exclusive {
			owner[id] = p.ID
		}
	}
	for _, g := range plan.Groups {
		p := byUID[g.ID]
		if fenced := len(g.Fence) > 0; (p.Tier == tier.Critical) != (fenced != (g.NotFenced != "")) {
			t.Fatalf("%s pod %d: fence %v, not fenced %q", p.Tier, g.ID, g.Fence, g.NotFenced)
		}
		smallest := len(g.Fence)
		for _, id := range g.Fence {
			if o, exclusive := owner[id]; exclusive && o != g.ID || slices.Contains(obs.Reserved, id) {
				t.Fatalf("pod %d: fence %v has CPU %d of another", g.ID, g.Fence, id)
			}
			smallest = min(smallest, len(obs.Topology.Siblings(id)))
		}
		if n := len(g.Fence); n > 0 && len(p.Exclusive) == 0 && (n < wholeCPUs(p.MilliCPU) || n-smallest >= wholeCPUs(p.MilliCPU)) {
			t.Fatalf("pod %d: fence %v for %dm", g.ID, g.Fence, p.MilliCPU)
		}
	}
}

// checkArrival: a newest pod takes nothing from anybody and moves nobody. An
// oldest one does so only to get a fence for which there is no other room.
func checkArrival(t *testing.T, plan Plan, obs Observation) {
	t.Helper()
	arrive := func(age int) (fenced bool, moved string) {
		arrived := gold(age, 2500)
		arrived.ID = 1000
		more := obs
		more.Pods = append(slices.Clone(obs.Pods), arrived)
		after := byID(Decide(plan, more).Groups)
		for _, g := range plan.Groups {
			if now := after[g.ID].Fence; !slices.Equal(now, g.Fence) {
				moved = fmt.Sprintf("the fence of %d was %v, is %v", g.ID, g.Fence, now)
			}
		}
		return len(after[1000].Fence) > 0, moved
	}
	room, moved := arrive(50)
	if moved != "" {
		t.Fatalf("a newer pod comes: %s", moved)
	}
	if fenced, moved := arrive(-1); moved != "" && (room || !fenced) {
		t.Fatalf("an older pod comes (room for it %v, fenced %v): %s", room, fenced, moved)
	}
}

func crowd() Observation {
	obs := Observation{Topology: computer(
		numa{uniform(64, 1), uniform(64, 1)}, numa{uniform(64, 1), uniform(64, 1)},
	)}
	for n := range 250 {
		obs.Pods = append(obs.Pods, gold(n+1, 1000))
	}
	return obs
}

func BenchmarkDecide(b *testing.B) {
	for name, milli := range map[string]int64{"all fit": 900, "few fit": 3500} {
		obs := crowd()
		for i := range obs.Pods {
			obs.Pods[i].MilliCPU = milli
		}
		b.Run(name+", from nothing", func(b *testing.B) {
			for b.Loop() {
				Decide(Plan{}, obs)
			}
		})
		b.Run(name+", nothing new", func(b *testing.B) {
			prev := Decide(Plan{}, obs)
			for b.Loop() {
				Decide(prev, obs)
			}
		})
	}
}
