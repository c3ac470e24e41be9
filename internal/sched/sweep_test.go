// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSweep: what a kill leaves goes wherever it came, and what is in use or somebody
// else's stays.
func TestSweep(t *testing.T) {
	scheduler := []string{pinObject, "controls", pinLink}
	for name, c := range map[string]struct {
		ops  string
		pins map[string][]string // by what follows the pin directory's name
		left []string
	}{
		"a dead scheduler":           {"", map[string][]string{"": scheduler}, nil},
		"killed while removing pins": {"", map[string][]string{"": scheduler[:2]}, nil},
		"killed while pinning":       {"", map[string][]string{"_new": scheduler[:1]}, nil},
		"killed before it pinned":    {"", map[string][]string{"_new": {}}, nil},
		"killed while measuring":     {"", map[string][]string{"_probe": {"cpu_times"}, "_probe_new": {"cpu_times"}}, nil},
		"beside another's scheduler": {"lavd", map[string][]string{"": scheduler}, nil},
		"nothing":                    {"", nil, nil},
		"one that runs":              {Name + "_1.0", map[string][]string{"": scheduler, "_probe": {"cpu_times"}}, []string{"temper", "temper_probe"}},
		"pins of somebody else":      {"", map[string][]string{"": {"theirs"}, "_probe": {"cpu_times"}}, []string{"temper"}},
		"what is not named so":       {"", map[string][]string{"_lab": {"object"}}, []string{"temper_lab"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			pinDir := filepath.Join(dir, "temper")
			for suffix, files := range c.pins {
				if err := os.Mkdir(pinDir+suffix, 0o700); err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					if err := os.WriteFile(filepath.Join(pinDir+suffix, f), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			refused := c.left != nil && name != "what is not named so"
			if err := sweep(State{Ops: c.ops}, pinDir); (err != nil) != refused {
				t.Errorf("sweep: %v", err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if !slices.Equal(left, c.left) {
				t.Errorf("left: %v, want %v", left, c.left)
			}
		})
	}
}
