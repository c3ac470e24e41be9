// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/temper-sched/temper/internal/topology"
)

// budgetGrowth is how far a program may outgrow its line in testdata/budget.txt
// before somebody has to say so by editing the file.
const budgetGrowth = 1.10

// budgetKernel is the kernel of the budget: each one's verifier walks differently.
const budgetKernel = "7.2."

// TestVerifierBudget loads each program by itself and compares the number of
// instructions that the verifier walked with the budget. The verifier's walk is
// what makes an attach slow and what a new kernel may refuse.
func TestVerifierBudget(t *testing.T) {
	requireGuest(t)
	if release := kernelRelease(); !strings.HasPrefix(release, budgetKernel) {
		t.Skipf("the budget is of kernel %s, this is %s", budgetKernel, release)
	}
	budget := readBudget(t)
	spec, err := prepare(Config{CPUs: readTopology(t)}, btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range spec.Programs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			walked := verify(t, spec, name)
			t.Logf("%s %d", name, walked)
			limit, ok := budget[name]
			if !ok {
				t.Fatalf("no budget for %s: add a line to testdata/budget.txt", name)
			}
			if float64(walked) > float64(limit)*budgetGrowth {
				t.Errorf("the verifier walked %d instructions, the budget is %d", walked, limit)
			}
		})
	}
}

// Where CPUs have no variable that counts what nobody preempts, as on arm64, nothing is left
// of the load that stands for it.
func TestLoadsWithoutPreemptCount(t *testing.T) {
	requireGuest(t)
	spec, err := prepare(Config{CPUs: readTopology(t)}, btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if ins := &p.Instructions[i]; ins.OpCode.IsDWordLoad() && ins.Src == pseudoBTFID {
				ins.Src, ins.Constant = 0, preemptCountMark
				named++
			}
		}
	}
	if named == 0 {
		t.Fatal("no program reads the kernel's variable")
	}
	if err := spec.Variables["has_preempt_count"].Set(false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"temper_select_cpu", "temper_enqueue"} {
		verify(t, spec, name)
	}
}

// The largest node that is supported: loops over words and LLCs are walked whole
// there, and a kernel gives up after a million instructions.
func TestVerifierOnLargestNode(t *testing.T) {
	requireGuest(t)
	const kernelLimit, reserve = 1_000_000, 2
	var cpus []topology.CPU
	for id := range maxCPUs {
		cpus = append(cpus, topology.CPU{ID: id, Core: id / 2, LLC: id / 16, Online: true})
	}
	spec, err := prepare(Config{CPUs: cpus}, btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Programs {
		t.Run(name, func(t *testing.T) {
			walked := verify(t, spec, name)
			t.Logf("%s %d", name, walked)
			if walked > kernelLimit/reserve {
				t.Errorf("the verifier walked %d instructions of the %d that a kernel allows", walked, kernelLimit)
			}
		})
	}
}

// verify loads one program alone and returns how many instructions were walked.
func verify(t *testing.T, spec *ebpf.CollectionSpec, name string) uint32 {
	t.Helper()
	one := spec.Copy()
	for other := range one.Programs {
		if other != name {
			delete(one.Programs, other)
		}
	}
	delete(one.Maps, "temper_ops")
	began := time.Now()
	coll, err := ebpf.NewCollection(one)
	if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		t.Fatalf("%v\n%s", err, strings.Join(verifier.Log[max(0, len(verifier.Log)-40):], "\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer coll.Close()
	info, err := coll.Programs[name].Info()
	if err != nil {
		t.Fatal(err)
	}
	walked, _ := info.VerifiedInstructions()
	t.Logf("%v", time.Since(began))
	return walked
}

func readBudget(t *testing.T) map[string]uint32 {
	t.Helper()
	f, err := os.Open("testdata/budget.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	budget := make(map[string]uint32)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var name string
		var n uint32
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if _, err := fmt.Sscan(lines.Text(), &name, &n); err != nil {
			t.Fatalf("read budget line %q: %v", lines.Text(), err)
		}
		budget[name] = n
	}
	return budget
}
