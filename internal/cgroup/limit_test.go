// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/temper-sched/temper/internal/policy"
)

func TestParseMax(t *testing.T) {
	for text, want := range map[string][2]uint64{
		"max 100000\n":           {0, 100_000},
		"150000 100000\n":        {150_000, 100_000},
		"1000 1000000\n":         {1000, 1_000_000},
		"1000 1000":              {1000, 1000},
		"17592186044416 100000":  {1 << 44, 100_000},
		" 6400000   10000 \n":    {6_400_000, 10_000},
		"\t10000\t\t100000\n\n ": {10_000, 100_000},
	} {
		quota, period, err := ParseMax(text)
		if err != nil || quota != want[0] || period != want[1] {
			t.Errorf("%q: %d, %d, %v; want %v", text, quota, period, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                      "two values are wanted",
		"max":                   "two values are wanted",
		"1000 1000 1000":        "two values are wanted",
		"max max":               `"max" is not a number`,
		"0 100000":              "0 µs is not between 1000",
		"999 100000":            "999 µs is not between 1000",
		"-1000 100000":          `"-1000" is not a number`,
		"1000 999":              "999 µs is not between 1000 and 1000000",
		"1000 1000001":          "1000001 µs is not between 1000 and 1000000",
		"1e3 100000":            `"1e3" is not a number`,
		"17592186044417 100000": "is not between",
		"max 0":                 "0 µs is not between",
	} {
		if _, _, err := ParseMax(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// FuzzParseMax checks that nothing panics and that what is accepted is a limit
// that the kernel could have written.
func FuzzParseMax(f *testing.F) {
	for _, text := range []string{"max 100000\n", "150000 100000\n", "1000 1000", "0 0", "-1 1", "max max"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quota, period, err := ParseMax(text)
		if err != nil {
			if quota != 0 {
				t.Fatalf("%q: a quota of %d and %v", text, quota, err)
			}
			return
		}
		if period < 1000 || period > 1_000_000 || quota != 0 && quota < 1000 || quota > 1<<44 {
			t.Fatalf("%q: accepted as %d of %d", text, quota, period)
		}
		if unlimited := strings.HasPrefix(strings.TrimSpace(text), "max"); unlimited != (quota == 0) {
			t.Fatalf("%q: a quota of %d", text, quota)
		}
	})
}

func limitedNode(t *testing.T) (*Tree, fstest.MapFS) {
	t.Helper()
	fsys := fstest.MapFS{
		".":                             dir(1),
		"cgroup.controllers":            text("cpu\n"),
		"kubepods":                      dir(10),
		"kubepods/cpu.max":              text("max 100000\n"),
		"kubepods/cpu.max.burst":        text("0\n"),
		"kubepods/pod":                  dir(11),
		"kubepods/pod/cpu.max":          text("150000 100000\n"),
		"kubepods/pod/cpu.max.burst":    text("30000\n"),
		"kubepods/pod/db":               dir(12),
		"kubepods/pod/db/cpu.max":       text("10000 10000\n"),
		"kubepods/pod/db/cpu.max.burst": text("0\n"),
		"system.slice":                  dir(20), // without the cpu controller
		"system.slice/ssh":              dir(21),
	}
	tree, err := New(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree, fsys
}

func TestLimits(t *testing.T) {
	tree, fsys := limitedNode(t)
	got, err := tree.Limits()
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Limit{
		{Cgroup: "/kubepods/pod", ID: 11, QuotaUs: 150_000, PeriodUs: 100_000, BurstUs: 30_000},
		{Cgroup: "/kubepods/pod/db", ID: 12, QuotaUs: 10_000, PeriodUs: 10_000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	fsys["kubepods/pod/cpu.max.burst"] = text("much\n")
	if _, err := tree.Limits(); err == nil || !strings.Contains(err.Error(), "parse cpu.max.burst of cgroup /kubepods/pod: ") {
		t.Errorf("a burst that is none: %v", err)
	}
}

// TestLimitsFollowFiles changes limits on a directory tree, as kubelet does.
func TestLimitsFollowFiles(t *testing.T) {
	root := t.TempDir()
	put := func(name, value string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("cgroup.controllers", "cpu\n")
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	known := map[uint64]policy.Limit{}
	// step returns the changes since the last one as "path quota/burst".
	step := func() (changes []string) {
		t.Helper()
		now, err := tree.Limits()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range policy.LimitChanges(known, now) {
			changes = append(changes, strings.Join([]string{l.Cgroup, time.Duration(l.QuotaUs * 1000).String(), time.Duration(l.BurstUs * 1000).String()}, " "))
			if known[l.ID] = l; l.QuotaUs == 0 {
				delete(known, l.ID)
			}
		}
		return changes
	}
	for _, c := range []struct {
		what string
		do   func()
		want []string
	}{
		{"nothing", func() {}, nil},
		{"a pod without a limit", func() { put("pod/cpu.max", "max 100000\n"); put("pod/cpu.max.burst", "0\n") }, nil},
		{"it gets one", func() { put("pod/cpu.max", "150000 100000\n") }, []string{"/pod 150ms 0s"}},
		{"nothing again", func() {}, nil},
		{"another one", func() { put("pod/cpu.max", "50000 100000\n") }, []string{"/pod 50ms 0s"}},
		{"another burst", func() { put("pod/cpu.max.burst", "20000\n") }, []string{"/pod 50ms 20ms"}},
		{
			"a container below", func() { put("pod/db/cpu.max", "10000 10000\n"); put("pod/db/cpu.max.burst", "0\n") },
			[]string{"/pod/db 10ms 0s"},
		},
		{"the pod's is lifted", func() { put("pod/cpu.max", "max 100000\n") }, []string{"/pod 0s 0s"}},
		{"the container goes", func() { _ = os.RemoveAll(filepath.Join(root, "pod/db")) }, []string{"/pod/db 0s 0s"}},
	} {
		c.do()
		if diff := cmp.Diff(c.want, step()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

// removing is a hierarchy in which a cgroup goes while its limit is read.
type removing struct {
	fstest.MapFS
	file string
	err  error
}

func (r removing) Open(name string) (fs.File, error) {
	if name == r.file {
		return nil, &fs.PathError{Op: "open", Path: name, Err: r.err}
	}
	return r.MapFS.Open(name)
}

// ReadFile hides MapFS's own, which asks for no Open.
func (r removing) ReadFile(name string) ([]byte, error) {
	if name == r.file {
		return nil, &fs.PathError{Op: "read", Path: name, Err: r.err}
	}
	return r.MapFS.ReadFile(name)
}

func TestLimitsWhileCgroupsVanish(t *testing.T) {
	for _, file := range []string{"kubepods/pod/cpu.max", "kubepods/pod/cpu.max.burst"} {
		for _, gone := range []error{fs.ErrNotExist, syscall.ENODEV} {
			tree, fsys := limitedNode(t)
			tree.fsys = removing{fsys, file, gone}
			got, err := tree.Limits()
			if err != nil || len(got) != 1 || got[0].ID != 12 {
				t.Errorf("%s gone by %v: %v, %v; want the container's limit", file, gone, got, err)
			}
		}
	}
	tree, fsys := limitedNode(t)
	tree.fsys = removing{fsys, "kubepods/pod/cpu.max", fs.ErrPermission}
	if _, err := tree.Limits(); err == nil {
		t.Error("a file that may not be read was passed over")
	}
}

func TestUsage(t *testing.T) {
	tree, fsys := limitedNode(t)
	fsys["kubepods/pod/cpu.stat"] = text("usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n")
	if got, err := tree.Usage("/kubepods/pod"); err != nil || got != 1500*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	fsys["kubepods/cpu.stat"] = text("user_usec 1\n")
	fsys["system.slice/cpu.stat"] = text("usage_usec many\n")
	for p, want := range map[string]string{
		"/kubepods":     "read CPU time of cgroup /kubepods: cpu.stat has no usage_usec",
		"/system.slice": `read CPU time of cgroup /system.slice: "many" is not a number of microseconds`,
		"/gone":         "read CPU time of cgroup /gone: file does not exist",
	} {
		if _, err := tree.Usage(p); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", p, err, want)
		}
	}
}
