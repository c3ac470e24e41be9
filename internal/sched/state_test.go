// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExitSaysWhen: who counts exits tells them by their time.
func TestExitSaysWhen(t *testing.T) {
	if e := describeExit(schedTemperExitInfo{Kind: exitSysRq, AtNs: 7}); e.At != 7 || e.Reason != EjectedSysRq {
		t.Errorf("%+v", e)
	}
}

// TestNeededSizes: what a handle reads maps into is as large as this build's values.
func TestNeededSizes(t *testing.T) {
	spec, err := loadSched()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range needed {
		m := spec.Maps[want.name]
		switch {
		case want.name == pinGlobals || want.name == pinObject: // the object has them under another name, or not
		case m == nil:
			t.Errorf("the object has no map %s", want.name)
		case uintptr(m.ValueSize) != want.size:
			t.Errorf("values of %s have %d bytes, want %d", want.name, m.ValueSize, want.size)
		}
	}
}

func TestPinThatIsMissed(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"not there":          {fmt.Errorf("pinned object: %w", unix.ENOENT), false},
		"another kind":       {errors.New("exits is not a Map"), false},
		"not ours to open":   {&os.PathError{Op: "open", Path: "exits", Err: unix.EACCES}, true},
		"too many are open":  {unix.EMFILE, true},
		"no memory for that": {unix.ENOMEM, true},
	} {
		var s Scheduler
		err := s.miss("exits", c.err)
		if (err != nil) != c.refused || errors.Is(s.check(), ErrOtherBuild) == c.refused {
			t.Errorf("%s: %v, then %v", name, err, s.check())
		}
	}
}
