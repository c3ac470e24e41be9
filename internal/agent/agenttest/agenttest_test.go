// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"bytes"
	"testing"
)

// An object of BPF is changed in its padding, an ELF file of another machine not.
func TestOtherBuild(t *testing.T) {
	elf := func(machine byte) string {
		return "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00" + string([]byte{machine, 0}) + "text"
	}
	program := []byte("before" + elf(0x3e) + elf(0xf7))
	other, err := OtherBuild(program)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(program)
	want[len("before"+elf(0x3e))+9] ^= 1
	if !bytes.Equal(other, want) {
		t.Errorf("got %q, want %q", other, want)
	}
	if _, err := OtherBuild([]byte("before" + elf(0x3e))); err == nil {
		t.Error("a program without a BPF object has another build")
	}
}
