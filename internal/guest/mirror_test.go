// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"testing"
	"testing/fstest"
)

func TestMirrorIsTheHosts(t *testing.T) {
	t.Setenv("TEMPER_MIRROR", "")
	for name, c := range map[string]struct{ file, text, want string }{
		"deb822":   {"apt/sources.list.d/debian.sources", "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n", "http://mirror.example/debian"},
		"one line": {"apt/sources.list", "# deb http://no.example/debian x\ndeb [arch=amd64] https://mirror.example/debian/ bookworm main\n", "https://mirror.example/debian"},
		"security": {"apt/sources.list", "deb http://mirror.example/debian-security bookworm-security main\n", ""},
		"none":     {"apt/sources.list", "", ""},
	} {
		got, err := mirror(fstest.MapFS{c.file: &fstest.MapFile{Data: []byte(c.text)}})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	t.Setenv("TEMPER_MIRROR", "http://closer.example/debian")
	if got, err := mirror(fstest.MapFS{}); err != nil || got != "http://closer.example/debian" {
		t.Errorf("TEMPER_MIRROR: %q, %v", got, err)
	}
}
