// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Names below the pin directory that are not maps. The object's fingerprint is
// pinned first and marks the directory as Temper's.
const (
	pinLink   = "link"
	pinObject = "object"
)

// The object's global variables are a map, whose name bpffs would not take.
const (
	sectionGlobals = ".bss"
	pinGlobals     = "globals"
)

// stagingDir has no dot: bpffs reserves names with one.
func stagingDir(pinDir string) string { return pinDir + "_new" }

// pinAll pins what another process needs to adopt the scheduler.
func pinAll(coll *ebpf.Collection, object *ebpf.Map, dir string) error {
	if err := object.Pin(filepath.Join(dir, pinObject)); err != nil {
		return fmt.Errorf("pin object map: %w", err)
	}
	for name, m := range coll.Maps {
		if strings.Contains(name, ".") || name == "temper_ops" {
			continue
		}
		if err := m.Pin(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	if err := coll.Maps[sectionGlobals].Pin(filepath.Join(dir, pinGlobals)); err != nil {
		return fmt.Errorf("pin global variables: %w", err)
	}
	for _, name := range programs {
		if err := coll.Programs[name].Pin(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("pin program %s: %w", name, err)
		}
	}
	return nil
}

// isPinDir refuses a directory that holds pins of others: it would be removed
// with everything in it.
func isPinDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, pinObject)); err != nil {
		return fmt.Errorf("%s holds pins that are not Temper's: name a directory of its own", dir)
	}
	return nil
}

// removePins removes a pin directory. The link goes first: from then on the
// kernel's own scheduler runs.
func removePins(dir string) error {
	if err := isPinDir(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, pinLink)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pinned link: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	for _, e := range entries {
		if e.Name() == pinObject {
			continue // last: it marks the rest as ours
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove pin %s: %w", e.Name(), err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// Clear removes what an attach or a detach that was killed half way left: the
// staging directory, with a link in it if it came so far, and a pin directory
// without one. It reports whether there was anything. Nobody may be attaching.
func Clear(pinDir string) (bool, error) {
	var found bool
	for _, dir := range []string{stagingDir(pinDir), pinDir} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, pinLink)); dir == pinDir && err == nil {
			continue
		}
		if err := removePins(dir); err != nil {
			return found, err
		}
		found = true
	}
	return found, nil
}

// stockWithin bounds the wait for the kernel to take over: it took 0.1 to 0.5 s
// in an emulated guest.
const stockWithin = 10 * time.Second

// awaitStock waits until the kernel has let go of our scheduler: dropping the
// link only begins that, and until then nobody else can attach.
func awaitStock() error {
	deadline := time.Now().Add(stockWithin)
	for {
		state, err := readSysfs()
		gone := state.Kernel == "disabled" || state.Kernel == "enabled" && !IsOurs(state.Ops)
		if err != nil || gone {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("detach: the kernel still says %q after %s", state.Kernel, stockWithin)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
