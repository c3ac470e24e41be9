// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

func TestCompareVersions(t *testing.T) {
	ascending := []string{
		"7.2~rc7-1~exp1", "7.2-1", "7.2.6-1~bpo13+1", "7.2.9-1~bpo13+1", "7.2.12-1~bpo13+1", "7.2.12-1", "7.2.12-1+b1",
		"7.2.13-1", "10.0-1", "1:1.0-1", "1:1.0-1a", "1:1.0-2", "1:1.0.1",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if got := compareVersions(a, b); got != want {
				t.Errorf("compare %s with %s: got %d, want %d", a, b, got, want)
			}
		}
	}
	if compareVersions("1.01-1", "1.1-1") != 0 {
		t.Error("leading zeros count")
	}
}

// FuzzCompareVersions checks that the order is one: newest depends on it.
func FuzzCompareVersions(f *testing.F) {
	f.Add("1:2.3-4~bpo", "2.3+b1-4")
	f.Add("~", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		if compareVersions(a, b) != -compareVersions(b, a) {
			t.Errorf("%q and %q: not antisymmetric", a, b)
		}
		if compareVersions(a, a) != 0 {
			t.Errorf("%q differs from itself", a)
		}
	})
}

const packagesFile = `Package: redis-server
Version: 5:8.0.2-3
Depends: redis-tools (= 5:8.0.2-3), libc6 (>= 2.34), adduser
Filename: pool/main/r/redis/redis-server_8.0.2-3_amd64.deb
Size: 75904
Description: persistent key-value database
 Version: not a field

Package: redis-server
Version: 5:8.0.10-1
Pre-Depends: init-system-helpers (>= 1.54~) | other:any
Filename: pool/main/r/redis/redis-server_8.0.10-1_amd64.deb
Size: 75905`

func TestIndexRead(t *testing.T) {
	x := index{}
	if err := x.read(bufio.NewReader(strings.NewReader(packagesFile)), "trixie"); err != nil {
		t.Fatal(err)
	}
	if n := len(x["redis-server"]); n != 2 {
		t.Fatalf("got %d versions, want 2", n)
	}
	p := x["redis-server"].newest()
	if p.version != "5:8.0.10-1" || p.size != 75905 || p.suite != "trixie" {
		t.Errorf("newest is %+v", p)
	}
	if want := []string{"init-system-helpers|other"}; !slices.Equal(p.depends, want) {
		t.Errorf("depends on %q, want %q", p.depends, want)
	}
	if p := x["redis-server"][0]; !slices.Equal(p.parts, []string{"redis-tools"}) {
		t.Errorf("parts are %q, want redis-tools", p.parts)
	}
}

func TestDebNameIsTheSameFromAptAndArchive(t *testing.T) {
	apt, archive := debName("/x/qemu-system-x86_1%3a10.0.2+ds-2_amd64.deb"), debName("pool/main/q/qemu/qemu-system-x86_10.0.2+ds-2_amd64.deb")
	if apt != archive {
		t.Errorf("apt keeps %s, the archive says %s", apt, archive)
	}
}

func TestLibrariesFollowsOnlyLibraries(t *testing.T) {
	a := &archive{idx: map[string]index{"s": {
		"libevent": {{name: "libevent", depends: []string{"libc6"}}},
		"libc6":    {{name: "libc6", depends: []string{"libgcc-s1|libgcc", "libc6"}}},
		"libgcc":   {{name: "libgcc"}},
	}}}
	root := &pkg{name: "memcached", depends: []string{"adduser", "perl", "libevent"}}
	got, err := a.libraries([]*pkg{root}, []string{"s"})
	var names []string
	for _, p := range got {
		names = append(names, p.name)
	}
	if want := []string{"libc6", "libevent", "libgcc"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v; want %q", names, err, want)
	}
	root.depends = []string{"libnone"}
	if _, err := a.libraries([]*pkg{root}, []string{"s"}); err == nil || !strings.Contains(err.Error(), "dependencies of memcached: find package libnone") {
		t.Errorf("got %v, want the missing library and who needs it", err)
	}
}
