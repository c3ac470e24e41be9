// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// What is appended is read back, whatever follows it.
func FuzzAppendRead(f *testing.F) {
	f.Add(byte(Stdout), []byte("hello"), []byte{0, 0})
	f.Add(byte(End), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, kind byte, payload, rest []byte) {
		if len(payload) > MaxPayload {
			return
		}
		r := bytes.NewReader(append(Append(nil, Kind(kind), payload), rest...))
		k, got, err := Read(r, make([]byte, MaxPayload))
		if err != nil || k != Kind(kind) || !bytes.Equal(got, payload) {
			t.Errorf("got %q %q, %v", k, got, err)
		}
		if r.Len() != len(rest) {
			t.Errorf("%d bytes left, want %d", r.Len(), len(rest))
		}
	})
}

func TestReadRefusesLongFrames(t *testing.T) {
	b := Append(nil, Data, make([]byte, MaxPayload+1))
	if _, _, err := Read(bytes.NewReader(b), make([]byte, 1<<20)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want a refusal", err)
	}
}
