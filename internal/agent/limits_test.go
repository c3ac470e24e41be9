// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// kernelSide answers each limit with the error that fails has for its cgroup.
type kernelSide struct {
	set   []string
	fails map[uint64]error
}

func (k *kernelSide) SetLimit(l policy.Limit) error {
	k.set = append(k.set, fmt.Sprintf("%d=%d", l.ID, l.QuotaUs))
	return k.fails[l.ID]
}

func TestFollow(t *testing.T) {
	limits := func(quotas map[uint64]uint64) (out []policy.Limit) {
		for id, quota := range quotas {
			out = append(out, policy.Limit{Cgroup: fmt.Sprint("/", id), ID: id, QuotaUs: quota, PeriodUs: 100_000})
		}
		return out
	}
	busy := errors.New("out of slots")
	var now []policy.Limit
	var listing error
	kernel := &kernelSide{}
	f := Follower{List: func() ([]policy.Limit, error) { return now, listing }, Set: kernel.SetLimit, Held: nothingHeld}
	for _, step := range []struct {
		what    string
		now     map[uint64]uint64
		listing error
		fails   map[uint64]error
		want    []string
		err     error
	}{
		{what: "two limits", now: map[uint64]uint64{1: 1000, 2: 2000}, want: []string{"1=1000", "2=2000"}},
		{what: "nothing new", now: map[uint64]uint64{1: 1000, 2: 2000}},
		{what: "unreadable", listing: unix.EIO, err: unix.EIO},
		{what: "one is hidden: others are set, and none is lifted", now: map[uint64]uint64{1: 1100}, listing: unix.EACCES, want: []string{"1=1100"}, err: unix.EACCES},
		{what: "it is seen again", now: map[uint64]uint64{1: 1000, 2: 2000}, want: []string{"1=1000"}},
		{what: "a third cannot be set", now: map[uint64]uint64{1: 1000, 2: 2000, 3: 3000}, fails: map[uint64]error{3: busy}, want: []string{"3=3000"}, err: busy},
		{what: "it is tried again, and others are not held up", now: map[uint64]uint64{1: 1500, 2: 2000, 3: 3000}, fails: map[uint64]error{3: busy}, want: []string{"1=1500", "3=3000"}, err: busy},
		{what: "and again", now: map[uint64]uint64{1: 1500, 2: 2000, 3: 3000}, want: []string{"3=3000"}},
		{what: "one is lifted", now: map[uint64]uint64{1: 1500, 3: 3000}, want: []string{"2=0"}},
		{what: "one's cgroup goes", now: map[uint64]uint64{1: 1500}, fails: map[uint64]error{3: unix.ENOENT}, want: []string{"3=0"}},
		{what: "it is forgotten", now: map[uint64]uint64{1: 1500}},
		{what: "lifting fails", fails: map[uint64]error{1: busy}, want: []string{"1=0"}, err: busy},
		{what: "and is tried again", want: []string{"1=0"}},
	} {
		now, listing, kernel.set, kernel.fails = limits(step.now), step.listing, nil, step.fails
		err := f.Follow()
		slices.Sort(kernel.set)
		if diff := cmp.Diff(step.want, kernel.set); diff != "" || !errors.Is(err, step.err) {
			t.Errorf("%s: error %v, want %v; told (-want +got):\n%s", step.what, err, step.err, diff)
		}
	}
}

func nothingHeld() ([]sched.LimitStats, error) { return nil, nil }

// TestFollowAfterAdoption: a limit that was lifted while nobody followed is lifted
// in the kernel side, too, as soon as it tells what it holds.
func TestFollowAfterAdoption(t *testing.T) {
	kernel := &kernelSide{}
	held := []sched.LimitStats{
		{ID: 1, Quota: time.Millisecond, Period: 100 * time.Millisecond},
		{ID: 2, Quota: time.Millisecond, Period: 100 * time.Millisecond},
		{ID: 3, Period: 100 * time.Millisecond}, // lifted already, and still there
	}
	mute := errors.New("no answer")
	telling := mute
	f := Follower{
		List: func() ([]policy.Limit, error) {
			return []policy.Limit{{Cgroup: "/1", ID: 1, QuotaUs: 2000, PeriodUs: 100_000}}, nil
		},
		Set:  kernel.SetLimit,
		Held: func() ([]sched.LimitStats, error) { return held, telling },
	}
	if err := f.Follow(); !errors.Is(err, mute) {
		t.Errorf("while it does not tell: %v", err)
	}
	telling = nil
	for range 2 {
		if err := f.Follow(); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(kernel.set)
	if diff := cmp.Diff([]string{"1=2000", "2=0"}, kernel.set); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestUsage(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"cgroup.controllers": "cpuset cpu memory\n",
		"a/cpu.stat":         "usage_usec 1500000\nuser_usec 7\n",
		"odd/cpu.stat":       "usage_usec much\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := &LiveCgroups{Root: root}
	got, err := c.Usage([]string{"/gone", "/a"})
	if want := map[string]time.Duration{"/a": 1500 * time.Millisecond}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := c.Usage([]string{"/odd", "/a"}); err == nil || len(got) != 1 {
		t.Errorf("of one that cannot be read: %v, %v", got, err)
	}
}
