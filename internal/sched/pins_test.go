// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestClear: of what is below the pin directory's parent only what a process that
// was killed half way left goes.
func TestClear(t *testing.T) {
	for name, c := range map[string]struct {
		have, want []string
		found      bool
		fails      bool
	}{
		"nothing":                   {nil, nil, false, false},
		"an attach before the link": {[]string{"temper_new/object", "temper_new/exits"}, nil, true, false},
		"an attach after it":        {[]string{"temper_new/object", "temper_new/link"}, nil, true, false},
		"an empty one":              {[]string{"temper_new/"}, nil, true, false},
		"a detach":                  {[]string{"temper/object", "temper/exits"}, nil, true, false},
		"what is attached":          {[]string{"temper/link", "temper/object"}, []string{"temper/link", "temper/object"}, false, false},
		"and an attach beside it":   {[]string{"temper/link", "temper/object", "temper_new/object"}, []string{"temper/link", "temper/object"}, true, false},
		"what others pinned":        {[]string{"temper/theirs"}, []string{"temper/theirs"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range c.have {
				path := filepath.Join(dir, file)
				err := os.MkdirAll(filepath.Dir(path), 0o700)
				if err == nil && strings.HasSuffix(file, "/") {
					err = os.Mkdir(path, 0o700)
				} else if err == nil {
					err = os.WriteFile(path, nil, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			found, err := Clear(filepath.Join(dir, "temper"))
			if found != c.found || (err != nil) != c.fails {
				t.Errorf("found %v, %v", found, err)
			}
			var left []string
			if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
				if rel, _ := filepath.Rel(dir, path); filepath.Dir(rel) != "." {
					left = append(left, rel)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if diff := cmp.Diff(c.want, left); diff != "" || err != nil || len(c.want) == 0 && len(entries) > 0 {
				t.Errorf("left: %v, %v (-want +got):\n%s", entries, err, diff)
			}
		})
	}
}
