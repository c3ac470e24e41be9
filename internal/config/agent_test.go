// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

func TestParseAgent(t *testing.T) {
	golden(t, "agent", func(data []byte) string {
		a, err := ParseAgent("agent.yaml", data)
		if err != nil {
			if diff := cmp.Diff(Agent{}, a); diff != "" {
				t.Errorf("a refused file left (-none +got):\n%s", diff)
			}
			return err.Error()
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	})
}

// FuzzParseAgent checks that no file panics, that every reason names the file,
// and that what is accepted is in range.
func FuzzParseAgent(f *testing.F) {
	files, err := filepath.Glob("testdata/agent/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(txtar.Parse(text).Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseAgent("agent.yaml", data)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "agent.yaml:") {
					t.Fatalf("a reason without its file: %q", line)
				}
			}
			return
		}
		known := a.Mode == Observe || a.Mode == Enforce
		if !known || a.DeadMan < ShortestDeadMan || a.DeadMan > LongestDeadMan || a.Settle < 0 || a.Settle > longestSettle ||
			a.Tiers.Critical < 1 || a.Tiers.Critical >= systemPriority || a.Tiers.Background > a.Tiers.Critical {
			t.Fatalf("accepted %+v", a)
		}
	})
}
