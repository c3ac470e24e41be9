// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/run"
)

// A campaign that failed before its first window was said to have left a file.
func TestNoRecordFileIsNamedThatIsNotThere(t *testing.T) {
	var out strings.Builder
	c := &run.Campaign{Dir: filepath.Join(t.TempDir(), "none")}
	if err := carryOut(t.Context(), &out, []*run.Campaign{c}, run.Todo{}); err == nil || strings.Contains(out.String(), bench.RecordFile) {
		t.Errorf("error %v, and:\n%s", err, out.String())
	}
}

// Whoever goes on after "done, but windows are void" must not go on after a failure.
func TestVoidIsNoFailureOnlyAlone(t *testing.T) {
	void, failed := fmt.Errorf("%w: 1 of 4", errVoid), errors.New("write report: disk full")
	for want, errs := range map[bool][]error{
		true:  {void, errors.Join(void, nil), errors.Join(void, void)},
		false: {failed, errors.Join(failed, void), errors.Join(void, errors.Join(failed))},
	} {
		for _, err := range errs {
			if onlyVoid(err) != want {
				t.Errorf("%q: only void windows: %v, want %v", err, !want, want)
			}
		}
	}
}
