// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"slices"
	"strings"
	"testing"
)

func TestParseTopology(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want Topology
		err  string
	}{
		"one socket":              {in: "1s4c1t", want: Topology{Sockets: 1, Cores: 4, Threads: 1}},
		"threads":                 {in: "1s2c2t", want: Topology{Sockets: 1, Cores: 2, Threads: 2}},
		"sockets":                 {in: "2s16c1t", want: Topology{Sockets: 2, Cores: 16, Threads: 1}},
		"empty":                   {in: "", err: "want sockets"},
		"units in another order":  {in: "4c1s1t", err: "want sockets"},
		"a unit is missing":       {in: "1s4c", err: "want sockets"},
		"zero cores":              {in: "1s0c1t", err: "want sockets"},
		"a sign":                  {in: "1s+4c1t", err: "want sockets"},
		"a leading zero":          {in: "1s04c1t", err: "want sockets"},
		"something after it":      {in: "1s4c1t,x", err: "unexpected"},
		"more threads than a CPU": {in: "1s1c4t", err: "at most 2 threads"},
		"too many CPUs":           {in: "2s32c2t", err: "128 CPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTopology(tc.in)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, %v; want an error with %q", got, err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Fatalf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

// A name that parses is the only spelling of its topology.
func FuzzParseTopology(f *testing.F) {
	for _, s := range []string{"1s4c1t", "2s2c2t", "1s64c1t", "01s4c1t", "1s4c1t1t", "s", "-1s1c1t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		topo, err := ParseTopology(s)
		if err != nil {
			return
		}
		if topo.String() != s {
			t.Errorf("%q parses, but its name is %q", s, topo)
		}
		if n := topo.CPUs(); n < 1 || n > maxCPUs {
			t.Errorf("%q has %d CPUs", s, n)
		}
	})
}

func TestTopologyArgs(t *testing.T) {
	got := topologyArgs(Topology{Sockets: 3, Cores: 2, Threads: 1}, 1000)
	want := []string{
		"-smp", "6,sockets=3,cores=2,threads=1", "-m", "1000M",
		"-object", "memory-backend-ram,id=m0,size=333M", "-numa", "node,nodeid=0,memdev=m0", "-numa", "cpu,node-id=0,socket-id=0",
		"-object", "memory-backend-ram,id=m1,size=333M", "-numa", "node,nodeid=1,memdev=m1", "-numa", "cpu,node-id=1,socket-id=1",
		"-object", "memory-backend-ram,id=m2,size=334M", "-numa", "node,nodeid=2,memdev=m2", "-numa", "cpu,node-id=2,socket-id=2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
