// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestPinDirOfACompletedWord: shells end a folder's name with a slash, and the names
// beside the pins begin with its own.
func TestPinDirOfACompletedWord(t *testing.T) {
	for given, want := range map[string]string{"/sys/fs/bpf/mine/": "/sys/fs/bpf/mine", "": "", "/sys/fs/bpf/mine": "/sys/fs/bpf/mine"} {
		cmd, _, err := newRoot(node{}).Find([]string{"stop"})
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags([]string{"--pin-dir", given}); err != nil {
			t.Fatal(err)
		}
		if got := pinDir(cmd); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
