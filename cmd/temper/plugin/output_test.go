// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// FuzzData verifies that what others wrote comes out as they wrote it, and that
// on the way no character of it reaches a terminal as a command.
func FuzzData(f *testing.F) {
	for _, text := range []string{"", "plain", "\x1b[2J\nnode  fake", "\u009b1m\u202e\u2028", "a: b\n- c", "\U000e0001", "yes", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // JSON has no bytes that are not text
		}
		decoders := map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal}
		for format, decode := range decoders {
			var out bytes.Buffer
			p := &plugin{Options: Options{Stdout: &out}}
			if isData, err := p.data(&output{value: format}, map[string]string{"text": text}); !isData || err != nil {
				t.Fatalf("%s: is data %t, error %v", format, isData, err)
			}
			for _, r := range out.String() {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("%s: %q holds %q", format, out.String(), r)
				}
			}
			var got struct{ Text string }
			if err := decode(out.Bytes(), &got); err != nil || got.Text != text {
				t.Errorf("%s: %q became %q, error %v", format, text, got.Text, err)
			}
		}
	})
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		since time.Time
		want  string
	}{
		"never":              {time.Time{}, "-"},
		"clocks that differ": {now.Add(time.Second), "0s"},
		"seconds":            {now.Add(-119 * time.Second), "119s"},
		"minutes":            {now.Add(-2 * time.Minute), "2m"},
		"hours":              {now.Add(-47 * time.Hour), "47h"},
		"days":               {now.Add(-48 * time.Hour), "2d"},
	}
	for name, c := range cases {
		if got := age(c.since, now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
