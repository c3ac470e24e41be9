// SPDX-License-Identifier: Apache-2.0

// Package wire is what the host and process 1 of a guest say to each other: a
// job at start, and frames on one virtio-serial port from then on. Both sides
// are built from the same tree, so it needs no version.
package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// JobPath is where the guest finds its Job, and StdinPath the command's input.
const (
	JobPath   = "/etc/temper/job.json"
	StdinPath = "/etc/temper/stdin"
	OutDir    = "/out"
)

// Job is the command to run.
type Job struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	// CheckTimers has a Ready frame sent before the command starts.
	CheckTimers bool `json:"check_timers,omitempty"`
}

// Result tells how the command ended. Times are since power-on.
type Result struct {
	Release string `json:"release"`
	// StartError is set if the command never ran.
	StartError string `json:"start_error,omitempty"`
	Code       int    `json:"code"`
	Signal     int    `json:"signal,omitempty"`
	// OutError is why not all of OutDir was sent.
	OutError  string `json:"out_error,omitempty"`
	StartedNs int64  `json:"started_ns"`
	EndedNs   int64  `json:"ended_ns"`
}

// Kind is what a frame carries.
type Kind byte

// The kinds of frame, all from guest to host. After a File frame, Data frames
// carry its content.
const (
	Ready  Kind = 'r' // every CPU's timer has fired
	Stdout Kind = 'o'
	Stderr Kind = 'e'
	File   Kind = 'f' // a path relative to OutDir
	Data   Kind = 'd'
	End    Kind = 'x' // a Result; always the last
)

// MaxPayload keeps a frame, header included, within what the port's driver
// takes in one piece.
const MaxPayload = 32<<10 - headerSize

const headerSize = 5

// Append adds a frame to b.
func Append(b []byte, k Kind, payload []byte) []byte {
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// Read reads the next frame. The payload is valid until the next call with buf.
func Read(r io.Reader, buf []byte) (Kind, []byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxPayload || int(n) > cap(buf) {
		return 0, nil, fmt.Errorf("read frame %q: %d bytes", head[0], n)
	}
	payload := buf[:n]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	return Kind(head[0]), payload, nil
}
