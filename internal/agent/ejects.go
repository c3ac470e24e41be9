// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/temper-sched/temper/internal/sched"
)

// ejectRecord is what a restart of the agent must not forget: another process of
// the same build has the same fault. A reboot forgets it, and so does safe mode
// once the node is off: a person has asked for that and knows, and what is
// installed afterwards shall not be latched by what was there before. No agent can
// have itself forget: it may not write its node's annotations.
type ejectRecord struct {
	Build   string          `json:"build"`
	Latched bool            `json:"latched"`
	Ejects  []time.Duration `json:"ejects_ns"` // since boot, within the last hour
	Last    time.Duration   `json:"last_ns"`   // the exit's own time, of the last that was counted

	unsaved bool
}

// lacks tells an eject that was not counted: no agent ran, or it ended before the
// kernel had recorded why.
func (r *ejectRecord) lacks(exit *sched.Exit) bool {
	return exit != nil && isEject(exit.Reason) && exit.At > r.Last
}

// add counts an eject, of which the kernel may have recorded nothing, and reports
// whether it latched.
func (r *ejectRecord) add(now time.Duration, exit *sched.Exit) bool {
	if exit != nil && !r.lacks(exit) {
		return false // while it attached: seen before and after
	}
	if exit != nil {
		r.Last = exit.At
	}
	r.Ejects = append(r.recent(now), now)
	r.unsaved = true
	latched := !r.Latched && len(r.Ejects) >= latchAt
	r.Latched = r.Latched || latched
	return latched
}

// recent are the ejects of the last hour.
func (r *ejectRecord) recent(now time.Duration) []time.Duration {
	return slices.DeleteFunc(slices.Clone(r.Ejects), func(at time.Duration) bool { return now-at >= latchWindow })
}

// open ends the latch.
func (r *ejectRecord) open() {
	r.unsaved = r.unsaved || r.Latched || len(r.Ejects) > 0
	r.Latched, r.Ejects = false, nil
}

func ejectFile(dir string) string { return filepath.Join(dir, "ejects.json") }

func freshEjectFile(dir string) string { return ejectFile(dir) + ".new" }

// removeEjects leaves nothing of a record, whoever wrote it.
func removeEjects(dir string) error {
	for _, file := range []string{ejectFile(dir), freshEjectFile(dir)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove record of ejects: %w", err)
		}
	}
	return nil
}

// loadEjects returns what was recorded for this build since the boot. A file that
// cannot be read counts as none, and the error says so.
func loadEjects(dir, build string, now time.Duration) (ejectRecord, error) {
	none := ejectRecord{Build: build}
	text, err := os.ReadFile(ejectFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read record of ejects: %w", err)
	}
	r, err := parseEjects(text)
	if err != nil {
		return none, fmt.Errorf("read record of ejects: %w", err)
	}
	if slices.Max(append(r.Ejects, r.Last)) > now {
		return none, nil // of another boot
	}
	if r.Build != build {
		none.Last = r.Last
		return none, nil
	}
	return r, nil
}

func parseEjects(text []byte) (ejectRecord, error) {
	var r ejectRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return ejectRecord{}, err
	}
	return r, nil
}

// save replaces the file whole: a process that dies meanwhile leaves the old one.
func (r *ejectRecord) save(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write record of ejects: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	fresh := freshEjectFile(dir)
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return fmt.Errorf("write record of ejects: %w", err)
	}
	if err := os.Rename(fresh, ejectFile(dir)); err != nil {
		return fmt.Errorf("write record of ejects: %w", err)
	}
	r.unsaved = false
	return nil
}
