// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// bzImage wraps a payload as the kernel's build does.
func bzImage(payload []byte) []byte {
	const setupSects, offset = 2, 64
	img := make([]byte, (setupSects+1)*sectorSize+offset)
	img[offSetupSects] = setupSects
	copy(img[offHeaderMagic:], "HdrS")
	binary.LittleEndian.PutUint32(img[offPayload:], offset)
	binary.LittleEndian.PutUint32(img[offPayloadLength:], uint32(len(payload)))
	return append(append(img, payload...), "signature"...)
}

func TestDecompressKernel(t *testing.T) {
	const kernel = "\x7fELF and so on"
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(kernel)))
	for name, compress := range map[string]func(*testing.T) []byte{
		"gzip": func(t *testing.T) []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, err := w.Write([]byte(kernel))
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			return b.Bytes() // its own trailer is the size
		},
		"zstd": func(t *testing.T) []byte {
			w, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatal(err)
			}
			return append(w.EncodeAll([]byte(kernel), nil), size...)
		},
		"xz":  func(t *testing.T) []byte { return append(tool(t, kernel, "xz", "-c", "--check=crc32"), size...) },
		"lz4": func(t *testing.T) []byte { return append(tool(t, kernel, "lz4", "-l", "-c"), size...) },
	} {
		t.Run(name, func(t *testing.T) {
			payload, err := bzImagePayload(bzImage(compress(t)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decompress(t.Context(), payload)
			if err != nil || string(got) != kernel {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// tool compresses with the tool that decompress would undo it with.
func tool(t *testing.T, in, name string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s; no kernel in the table does", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBzImageRefused(t *testing.T) {
	good := bzImage([]byte("payload"))
	beyond := bytes.Clone(good)
	binary.LittleEndian.PutUint32(beyond[offPayloadLength:], 1<<20)
	for name, img := range map[string][]byte{
		"empty":                  nil,
		"an ELF file":            append([]byte("\x7fELF"), make([]byte, 4096)...),
		"payload beyond its end": beyond,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := bzImagePayload(img); err == nil {
				t.Error("accepted")
			}
		})
	}
	if _, err := decompress(t.Context(), []byte("plain")); err == nil {
		t.Error("unknown compression accepted")
	}
}
