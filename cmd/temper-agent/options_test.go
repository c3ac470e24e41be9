// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"
)

// TestPinDir: names beside the pins begin with the directory's, which must be one.
func TestPinDir(t *testing.T) {
	for given, want := range map[string]string{"/run/bpf/temper/": "/run/bpf/temper", "/run/bpf/temper": "/run/bpf/temper", "": ""} {
		cfg, _, err := options{node: "n1", level: "info", pinDir: given}.read(io.Discard)
		if cfg.PinDir != want || (err != nil) != (given == "") {
			t.Errorf("%q: %q, %v; want %q", given, cfg.PinDir, err, want)
		}
	}
}
