// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"io"
)

// File types in a cpio mode.
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

// cpioWriter writes an archive of the "newc" format, which is what the kernel
// unpacks. The same entries give the same bytes: deterministic guests need it.
type cpioWriter struct {
	w   io.Writer
	ino int
	n   int64
	err error
}

// entry writes a header and the content of one file. Errors stick until close.
func (c *cpioWriter) entry(name string, mode, major, minor int, size int64, content io.Reader) {
	c.ino++
	links := 1
	if mode&typeMask == typeDir {
		links = 2
	}
	c.printf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		c.ino, mode, 0, 0, links, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	c.pad()
	if c.err == nil && content != nil {
		n, err := io.Copy(c.w, io.LimitReader(content, size))
		c.n += n
		c.err = err
		if err == nil && n != size {
			c.err = fmt.Errorf("write %s: %d of %d bytes", name, n, size)
		}
	}
	c.pad()
}

// close ends the archive. Another one may follow it.
func (c *cpioWriter) close() error {
	c.ino = -1
	c.entry("TRAILER!!!", 0, 0, 0, 0, nil)
	return c.err
}

func (c *cpioWriter) printf(format string, args ...any) {
	if c.err == nil {
		var n int
		n, c.err = fmt.Fprintf(c.w, format, args...)
		c.n += int64(n)
	}
}

// pad aligns to 4 bytes.
func (c *cpioWriter) pad() {
	if r := c.n % 4; r != 0 {
		c.printf("%s", "\x00\x00\x00"[:4-r])
	}
}
