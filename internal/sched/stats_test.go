// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestReadEvents(t *testing.T) {
	file := func(text string) fstest.MapFS {
		return fstest.MapFS{"root/events": {Data: []byte(text)}}
	}
	got, err := readEvents(file("SCX_EV_SELECT_CPU_FALLBACK 3\nSCX_EV_BYPASS_DURATION 12000\n"))
	want := map[string]int64{"SCX_EV_SELECT_CPU_FALLBACK": 3, "SCX_EV_BYPASS_DURATION": 12000}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if got, err := readEvents(fstest.MapFS{}); err != nil || len(got) != 0 {
		t.Errorf("no file: %v, %v", got, err)
	}
	if _, err := readEvents(file("SCX_EV_X many\n")); err == nil {
		t.Error("no error for a value that is no number")
	}
}
