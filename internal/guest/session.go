// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/temper-sched/temper/internal/guest/wire"
)

// session is the host's end of a guest's port.
type session struct {
	cmd    *Cmd
	tail   *tailReader
	ready  chan struct{} // closed when the guest is ready, if it is to say so
	result *wire.Result
	out    *os.File
	outErr error // the first failure to write output; the guest runs on
}

// follow reads frames until the last.
func (s *session) follow() error {
	defer s.closeOut()
	buf := make([]byte, wire.MaxPayload)
	for {
		kind, payload, err := wire.Read(s.tail, buf)
		if err != nil {
			return err
		}
		switch kind {
		case wire.Ready:
			if s.ready != nil {
				close(s.ready)
				s.ready = nil
			}
		case wire.Stdout:
			s.write(s.cmd.Stdout, payload)
		case wire.Stderr:
			s.write(s.cmd.Stderr, payload)
		case wire.File:
			s.keep(s.openOut(string(payload)))
		case wire.Data:
			if s.out != nil {
				s.write(s.out, payload)
			}
		case wire.End:
			s.result = &wire.Result{}
			return json.Unmarshal(payload, s.result)
		default:
			return fmt.Errorf("read frame: unknown kind %q", byte(kind))
		}
	}
}

func (s *session) write(w io.Writer, b []byte) {
	if w != nil {
		_, err := w.Write(b)
		s.keep(err)
	}
}

func (s *session) keep(err error) {
	if s.outErr == nil && err != nil {
		s.outErr = fmt.Errorf("keep guest output: %w", err)
	}
}

// openOut starts a file of the command's output directory. The name is the
// guest's, so it may not lead outside.
func (s *session) openOut(name string) error {
	s.closeOut()
	if s.cmd.Out == "" {
		return nil
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("write %q: outside of the output directory", name)
	}
	path := filepath.Join(s.cmd.Out, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	s.out = f
	return err
}

func (s *session) closeOut() {
	if s.out != nil {
		s.keep(s.out.Close())
		s.out = nil
	}
}

// followPoll is how soon new output of a guest is seen.
const followPoll = 10 * time.Millisecond

// tailReader reads a file that is still being written, until stop is closed.
// QEMU writes the port to a file because that never blocks: a slow reader of a
// pipe would reach back into the guest's timing.
type tailReader struct {
	f    *os.File
	poll time.Duration
	stop chan struct{}
	last bool
}

// Read waits for data, and ends when no more can come.
func (t *tailReader) Read(b []byte) (int, error) {
	for {
		n, err := t.f.Read(b)
		if n > 0 || (err != nil && !errors.Is(err, io.EOF)) {
			return n, err
		}
		if t.last {
			return 0, io.EOF
		}
		select {
		case <-t.stop:
			t.last = true // what was written before the stop is still read
		case <-time.After(t.poll):
		}
	}
}
