// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/klauspost/compress/zstd"
)

// Offsets in a bzImage's setup header (Documentation/arch/x86/boot.rst).
const (
	offSetupSects    = 0x1f1
	offHeaderMagic   = 0x202
	offPayload       = 0x248
	offPayloadLength = 0x24c
	sectorSize       = 512
)

// extractVmlinux writes the uncompressed ELF kernel inside the bzImage at src
// to dst. QEMU enters it directly (PVH), which spares the guest executing the
// decompressor instruction by emulated instruction.
func extractVmlinux(ctx context.Context, src, dst string) error {
	img, err := os.ReadFile(src)
	if err != nil {
		return fmt.Errorf("read kernel image: %w", err)
	}
	payload, err := bzImagePayload(img)
	if err != nil {
		return fmt.Errorf("read kernel image %s: %w", src, err)
	}
	vmlinux, err := decompress(ctx, payload)
	if err != nil {
		return fmt.Errorf("decompress kernel image %s: %w", src, err)
	}
	if !bytes.HasPrefix(vmlinux, []byte(elf.ELFMAG)) {
		return fmt.Errorf("decompress kernel image %s: payload is not an ELF file", src)
	}
	if err := os.WriteFile(dst, vmlinux, 0o644); err != nil {
		return fmt.Errorf("write kernel: %w", err)
	}
	return nil
}

// bzImagePayload returns the compressed kernel.
func bzImagePayload(img []byte) ([]byte, error) {
	if len(img) < offPayloadLength+4 || string(img[offHeaderMagic:offHeaderMagic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	setup := int(img[offSetupSects])
	if setup == 0 {
		setup = 4 // the header's own rule for old loaders
	}
	start := (setup+1)*sectorSize + int(binary.LittleEndian.Uint32(img[offPayload:]))
	end := start + int(binary.LittleEndian.Uint32(img[offPayloadLength:]))
	if start >= end || end > len(img) {
		return nil, fmt.Errorf("payload [%d,%d) outside of %d bytes", start, end, len(img))
	}
	return img[start:end], nil
}

// decompress undoes whichever of the kernel's compressions b has. The build
// appends the uncompressed size, which readers of some formats take for
// garbage: what counts is the data before it.
func decompress(ctx context.Context, b []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		r, err := zstd.NewReader(bytes.NewReader(b[:len(b)-4]))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		r.Multistream(false)
		return io.ReadAll(r)
	case bytes.HasPrefix(b, []byte("\xfd7zXZ\x00")):
		return pipe(ctx, b[:len(b)-4], "xz", "-dc", "--single-stream")
	case bytes.HasPrefix(b, []byte{0x02, 0x21, 0x4c, 0x18}):
		return pipe(ctx, b[:len(b)-4], "lz4", "-dc")
	}
	return nil, fmt.Errorf("unknown compression %x", b[:min(len(b), 6)])
}

// pipe runs a decompressor that Go's library lacks.
func pipe(ctx context.Context, in []byte, tool string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", tool, err)
	}
	return out, nil
}

// schedExt is what a kernel's BTF says about sched_ext.
type schedExt string

const (
	schedExtGood      schedExt = "good"      // schedulers load
	schedExtNone      schedExt = "none"      // built without it
	schedExtMalformed schedExt = "malformed" // its kfuncs cannot be called
)

// inspectBTF classifies the kernel of this release at path. From 7.1 on, kfuncs with implicit
// arguments are described twice, the second time with the suffix _impl; a
// pahole that is too old leaves the twin out, and the verifier then refuses
// every scheduler that kicks a CPU.
func inspectBTF(path, release string) (schedExt, error) {
	major, minor := splitVersion(release)
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("open kernel: %w", err)
	}
	defer f.Close()
	sec := f.Section(".BTF")
	if sec == nil {
		return schedExtNone, nil
	}
	b, err := sec.Data()
	if err != nil {
		return "", fmt.Errorf("read BTF of %s: %w", path, err)
	}
	named := func(s string) bool { return bytes.Contains(b, []byte("\x00"+s+"\x00")) }
	switch {
	case !named("sched_ext_ops") || !named("scx_bpf_kick_cpu"):
		return schedExtNone, nil
	case (major > 7 || major == 7 && minor >= 1) && !named("scx_bpf_kick_cpu_impl"):
		return schedExtMalformed, nil
	}
	return schedExtGood, nil
}
