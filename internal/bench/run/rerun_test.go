// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

func TestCompareDigests(t *testing.T) {
	c := campaign(t)
	recs := records(t, c, c.jobs()[0])
	want := map[int]string{}
	for i := range recs {
		if err := recs[i].Seal(); err != nil {
			t.Fatal(err)
		}
		want[i] = recs[i].Digest
	}
	recs[1].Window.Primary.Ops++ // measured otherwise
	want[9] = "gone"
	got, err := compare(want, recs)
	if err != nil || got.Same != 1 || !slices.Equal(got.Differ, []int{1}) || !slices.Equal(got.Missing, []int{9}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRerunRefusesRealTime(t *testing.T) {
	c := campaign(t)
	for _, clock := range []string{bench.ClockHost, bench.ClockOpen} {
		if _, err := c.Rerun(t.Context(), Again{Machine: bench.Machine{Clock: clock}}); err == nil || !strings.Contains(err.Error(), "real time never") {
			t.Errorf("error %v", err)
		}
	}
}

func TestTheWayToTheProgramsIsSaid(t *testing.T) {
	err := &NotTheSame{Differences: []string{"emulator was a, is b"}, Commit: "abc"}
	if text := err.Error(); !strings.Contains(text, "git worktree add ../abc abc && make -C ../abc build") || !strings.Contains(text, "\n  emulator was a, is b") {
		t.Error(text)
	}
	err.Commit = "abc+"
	if text := err.Error(); strings.Contains(text, "git worktree") || !strings.Contains(text, "built from abc and changes") {
		t.Error(text)
	}
}
