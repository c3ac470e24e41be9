// SPDX-License-Identifier: Apache-2.0

// Package agenttest is what tests and measurements do with our programs: make
// another build of the agent, and read what one says while it runs.
package agenttest

import (
	"bytes"
	"errors"
	"slices"
	"sync"
)

// OtherBuild returns program, an executable of the agent, with another BPF object
// in it: of each, a byte of the header that nobody reads is changed.
func OtherBuild(program []byte) ([]byte, error) {
	// An ELF file for 64 bits, little endian, version 1; type relocatable and
	// machine BPF follow the padding.
	head, machine := []byte("\x7fELF\x02\x01\x01\x00"), []byte("\x01\x00\xf7\x00")
	const padding, types = 9, 16
	other, found := slices.Clone(program), false
	for at := 0; ; at++ {
		next := bytes.Index(other[at:], head)
		if next < 0 {
			break
		}
		at += next
		if bytes.HasPrefix(other[min(at+types, len(other)):], machine) {
			other[at+padding] ^= 1
			found = true
		}
	}
	if !found {
		return nil, errors.New("make other build: no BPF object in the program")
	}
	return other, nil
}

// Transcript is what a process has written so far.
type Transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes more of it.
func (t *Transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String returns it.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
