// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// listCPIO reads an archive back: one line per entry, with its content.
func listCPIO(t *testing.T, r *bytes.Reader) []string {
	t.Helper()
	var out []string
	for r.Len() > 0 {
		head := make([]byte, 110)
		if _, err := io.ReadFull(r, head); err != nil {
			t.Fatal(err)
		}
		if string(head[:6]) != "070701" {
			t.Fatalf("bad magic %q after %q", head[:6], out)
		}
		field := func(i int) int {
			n, err := strconv.ParseInt(string(head[6+8*i:14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		padded := func(before, n int) string {
			b := make([]byte, (before+n+3)/4*4-before)
			if _, err := io.ReadFull(r, b); err != nil {
				t.Fatal(err)
			}
			return string(b[:n])
		}
		name := strings.TrimSuffix(padded(110, field(11)), "\x00")
		content := padded(0, field(6))
		out = append(out, fmt.Sprintf("%s %o %d:%d %q", name, field(1), field(9), field(10), content))
	}
	return out
}

func TestTreeWrite(t *testing.T) {
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "tool"), []byte("odd"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("tool", filepath.Join(host, "alias")); err != nil {
		t.Fatal(err)
	}
	tr := tree{}
	tr.file("/etc/hosts", []byte("127.0.0.1\n"))
	tr.char("dev/null", 1, 3)
	if err := tr.copyFrom("/bin/x", host); err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := tr.write(&first); err != nil {
		t.Fatal(err)
	}
	if err := tr.write(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the same tree gives other bytes (%v)", err)
	}
	got := strings.Join(listCPIO(t, bytes.NewReader(first.Bytes())), "\n")
	want := strings.Join([]string{
		`dev 40755 0:0 ""`,
		`dev/null 20666 1:3 ""`,
		`etc 40755 0:0 ""`,
		`etc/hosts 100644 0:0 "127.0.0.1\n"`,
		`usr 40755 0:0 ""`,
		`usr/bin 40755 0:0 ""`,
		`usr/bin/x 40755 0:0 ""`,
		`usr/bin/x/alias 120777 0:0 "tool"`,
		`usr/bin/x/tool 100750 0:0 "odd"`,
		`TRAILER!!! 0 0:0 ""`,
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAddNeededFollowsLinks(t *testing.T) {
	own := tree{}
	shared := tree{}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shared.add("lib/x86_64-linux-gnu/libm.so.6", node{mode: typeLink, data: []byte("libm-2.so")})
	shared.add("usr/lib/x86_64-linux-gnu/libm-2.so", node{mode: typeFile, source: self})
	added := own.addLibrary(shared, "usr/lib/x86_64-linux-gnu/libm.so.6")
	if len(added) != 2 || own["usr/lib/x86_64-linux-gnu/libm-2.so"].source != self {
		t.Errorf("added %q, want the link and its target", added)
	}
}
