// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"os"
)

// Sweep removes what processes that were killed left pinned of the scheduler below pinDir
// and of its probe, whole or half made. While a scheduler of ours is loaded it refuses. The
// caller holds the node: nobody else is at these pins.
func Sweep(pinDir string) error {
	state, err := readSysfs()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return sweep(state, pinDir)
}

func sweep(now State, pinDir string) error {
	if IsOurs(now.Ops) {
		return fmt.Errorf("sweep pins: scheduler %q is still loaded", now.Ops)
	}
	return errors.Join(removePins(pinDir), removePins(stagingDir(pinDir)), SweepProbe(probeDir(pinDir)))
}

// SweepProbe removes the pins of a probe whose process was killed.
func SweepProbe(dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(stagingDir(dir))); err != nil {
		return fmt.Errorf("sweep probe's pins: %w", err)
	}
	return nil
}
