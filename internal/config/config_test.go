// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/topology"
)

var update = flag.Bool("update", false, "rewrite the want files of testdata")

// known are the cgroups of the test node.
type known map[string]uint64

func (k known) ID(path string) (uint64, error) {
	if id, found := k[path]; found {
		return id, nil
	}
	return 0, fmt.Errorf("find cgroup %s: %w", path, fs.ErrNotExist)
}

// testNode has three cores of two CPUs each.
func testNode() Node {
	n := Node{Cgroups: known{
		"/kubepods": 10, "/kubepods/besteffort": 11, "/kubepods/pod1234": 12,
		"/system.slice": 20, "/system.slice/ssh.service": 21,
	}}
	for id := range 6 {
		n.Topology.CPUs = append(n.Topology.CPUs, topology.CPU{ID: id, Core: id / 2, Online: true})
	}
	return n
}

// golden runs every txtar of a testdata folder: plan.yaml in, want out.
func golden(t *testing.T, folder string, run func(plan []byte) string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in testdata/%s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := run(archive.Files[0].Data) + "\n"
			if *update {
				archive.Files[1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseAccepts(t *testing.T) {
	golden(t, "accepted", func(data []byte) string {
		plan, err := Parse("plan.yaml", data, testNode())
		if err != nil {
			return err.Error()
		}
		for _, g := range plan.Groups {
			if id, _ := testNode().Cgroups.ID(g.Cgroup); g.ID != id {
				t.Errorf("%s has id %d, want %d", g.Cgroup, g.ID, id)
			}
		}
		var lines []string
		for _, op := range policy.Diff(policy.Plan{}, plan) {
			lines = append(lines, op.String())
		}
		return strings.Join(lines, "\n")
	})
}

func TestParseCPUMax(t *testing.T) {
	const groups = "groups: [{cgroup: /kubepods, tier: standard}]\n"
	for text, want := range map[string]policy.CPUMax{
		groups: policy.CPUMaxEnforce, "cpuMax: enforce\n" + groups: policy.CPUMaxEnforce, "cpuMax: refuse\n" + groups: policy.CPUMaxRefuse,
	} {
		if plan, err := Parse("plan.yaml", []byte(text), testNode()); err != nil || plan.CPUMax != want {
			t.Errorf("%q: %s, %v; want %s", text, plan.CPUMax, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	golden(t, "refused", func(data []byte) string {
		plan, err := Parse("plan.yaml", data, testNode())
		if err == nil {
			return "accepted"
		}
		if len(plan.Groups) > 0 {
			t.Errorf("a refused file left a plan: %+v", plan)
		}
		return err.Error()
	})
}

func TestParseRefusesBytes(t *testing.T) {
	cases := map[string]struct {
		data []byte
		want string
	}{
		"huge":           {bytes.Repeat([]byte("#"), MaxSize+1), "plan.yaml: 1048577 bytes: a plan file has at most 1048576"},
		"no byte":        {nil, "plan.yaml: the file is empty: name at least one cgroup under groups"},
		"NUL":            {[]byte("groups:\n  - cgroup: /a\x00b\n"), "plan.yaml:2: NUL byte: this is not a text file"},
		"escaped NUL":    {[]byte("groups: [{cgroup: \"/kubepods\\0\", tier: standard}]"), `plan.yaml:1: cgroup "/kubepods\x00" contains a control character`},
		"not UTF-8":      {[]byte("groups: \xff\xfe"), "plan.yaml:1: not YAML: invalid leading UTF-8 octet"},
		"deeply nested":  {bytes.Repeat([]byte("["), 100_000), "plan.yaml:1: not YAML: exceeded max depth of 10000"},
		"a long scalar":  {append([]byte("groups: "), bytes.Repeat([]byte("x"), 1000)...), `plan.yaml:1: groups is a list, not "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"…`},
		"Windows breaks": {[]byte("groups:\r\n  - cgroup: /kubepods\r\n    tier: vip\r\n"), `plan.yaml:3: unknown tier "vip": one of critical, system, standard, background`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("plan.yaml", c.data, testNode())
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// FuzzParse checks that no file panics, that every reason names the file, and
// that what is accepted has no problems left.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		node := testNode()
		plan, err := Parse("plan.yaml", data, node)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "plan.yaml:") {
					t.Fatalf("a reason without its file: %q", line)
				}
			}
			return
		}
		if problems := policy.Validate(plan, node.Topology); len(problems) > 0 || len(plan.Groups) == 0 {
			t.Fatalf("accepted %+v with problems %v", plan, problems)
		}
	})
}
