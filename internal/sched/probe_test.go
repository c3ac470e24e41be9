// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/temper-sched/temper/internal/tier"
)

// requireBPF skips a test that runs BPF programs without attaching them, where
// this process may not.
func requireBPF(t *testing.T) {
	t.Helper()
	check := checkCapabilities()
	if check.OK {
		return
	}
	if os.Getenv("REQUIRE_ALL") == "1" {
		t.Fatalf("needs CAP_BPF and CAP_PERFMON: %s", check.Detail)
	}
	t.Skipf("needs CAP_BPF and CAP_PERFMON: %s", check.Detail)
}

// The kernel side and BucketBounds are two computations of one thing.
func TestKernelSideBuckets(t *testing.T) {
	requireBPF(t)
	var objects probetestObjects
	if err := loadProbetestObjects(&objects, nil); err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	check := func(d time.Duration, want int) {
		t.Helper()
		got, err := objects.BucketOfDuration.Run(&ebpf.RunOptions{Context: uint64(d)})
		if err != nil {
			t.Fatal(err)
		}
		if int(got) != want {
			t.Errorf("the kernel side counts %d ns in bucket %d, want %d", d, got, want)
		}
	}
	for i := range histBuckets {
		low, high := BucketBounds(i)
		check(low, i)
		check(high-1, i)
	}
	check(1<<40, histBuckets-1)
	check(1<<62, histBuckets-1)
	check(-1, histBuckets-1)
}

// Every bucket of the kernel side has its place in ours, and the tiers' CPU
// time leaves out no tier.
func TestBucketsAreThoseOfTheObject(t *testing.T) {
	spec, err := loadProbe()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("temper_bucket", &enum); err != nil {
		t.Fatal(err)
	}
	want := map[string]Bucket{
		"TEMPER_TIME_OWN":             BucketOwn,
		"TEMPER_TIME_CRITICAL":        BucketCritical,
		"TEMPER_TIME_SYSTEM":          BucketSystem,
		"TEMPER_TIME_STANDARD":        BucketStandard,
		"TEMPER_TIME_BACKGROUND":      BucketBackground,
		"TEMPER_TIME_LENT_SYSTEM":     BucketLent,
		"TEMPER_TIME_LENT_STANDARD":   BucketLent,
		"TEMPER_TIME_LENT_BACKGROUND": BucketLent,
		"TEMPER_TIME_OTHER":           BucketOther,
		"TEMPER_TIME_IRQ":             BucketIRQ,
		"TEMPER_TIME_IDLE":            BucketIdle,
	}
	for _, v := range enum.Values {
		if v.Name == "TEMPER_TIME_BUCKETS" {
			continue
		}
		if got, ok := want[v.Name]; !ok || got != buckets[v.Value] {
			t.Errorf("%s counts as bucket %d, want %d (known: %v)", v.Name, buckets[v.Value], got, ok)
		}
		delete(want, v.Name)
	}
	if len(want) > 0 {
		t.Errorf("the object lacks %v", want)
	}
	perTier := make(map[tier.Tier]int)
	for _, of := range tiers {
		perTier[of]++
	}
	for _, of := range tier.All() {
		if perTier[of] != 2 {
			t.Errorf("%d buckets count as tier %s, want 2", perTier[of], of)
		}
	}
}
