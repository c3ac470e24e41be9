// SPDX-License-Identifier: Apache-2.0

// Package spin is background work: a program that computes for ever.
//
// It has no runtime, no timers and no system calls: whatever a spinner does to
// its neighbours, it does by using the CPU. It is also cheap to emulate, being
// long runs of plain arithmetic, so that a guest full of spinners costs little
// real time. The program is made here, byte by byte, because a compiler would
// be one more thing to install for twenty instructions.
package spin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
)

const (
	loadAt     = 0x400000
	headerSize = 64 + 56 // ELF header and one program header
	// unroll is the number of arithmetic instructions between two jumps.
	unroll = 256
)

// Program returns a static x86-64 ELF executable that spins.
func Program() []byte {
	code := code()
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2 /* 64 bit */, 1 /* little endian */, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	put := func(fields ...any) {
		for _, f := range fields {
			// A bytes.Buffer takes everything.
			_ = binary.Write(&b, binary.LittleEndian, f)
		}
	}
	const exec, x86_64 = 2, 62
	put(uint16(exec), uint16(x86_64), uint32(1))
	put(uint64(loadAt+headerSize), uint64(64), uint64(0)) // entry, program headers, no sections
	put(uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0))
	size := uint64(headerSize + len(code))
	const load, readExec = 1, 5
	put(uint32(load), uint32(readExec), uint64(0), uint64(loadAt), uint64(loadAt), size, size, uint64(4096))
	b.Write(code)
	return b.Bytes()
}

// code is a loop of additions: lea changes no flags, so an emulator has
// nothing to keep for it.
func code() []byte {
	lea := []byte{0x48, 0x8d, 0x40, 0x01} // lea rax, [rax+1]
	loop := bytes.Repeat(lea, unroll)
	jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(-int32(len(loop)+5))) // jmp loop
	return append(loop, jump...)
}

// Install writes the program to path.
func Install(path string) error {
	if err := os.WriteFile(path, Program(), 0o755); err != nil {
		return fmt.Errorf("install spinner: %w", err)
	}
	return nil
}
