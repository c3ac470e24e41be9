// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/verify"
)

// tornFile receives lines that an interruption cut off.
const tornFile = "records.torn"

// store is a campaign's directory: its record file, and what is in it.
type store struct {
	mu    sync.Mutex
	file  *os.File // nil if only read
	held  []window
	torn  string // where a line that was cut off went
	where string
}

// window is what a record says of itself, as far as going on needs it.
type window struct {
	Schema   int             `json:"schema"`
	Campaign string          `json:"campaign"`
	Scenario json.RawMessage `json:"scenario"`
	Arm      json.RawMessage `json:"arm"`
	Seed     uint64          `json:"seed"`
	Build    bench.Build     `json:"build"`
	Machine  bench.Machine   `json:"machine"`
	Window   struct {
		Step bench.Step `json:"step"`
	} `json:"window"`
	Verdict       bench.Verdict `json:"verdict"`
	scenario, arm string
}

// openStore opens dir for more records, for this process alone.
func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create record directory: %w", err)
	}
	path := filepath.Join(dir, bench.RecordFile)
	file, err := lock(path)
	if err != nil {
		return nil, err
	}
	s := &store{file: file, where: path}
	if err := s.mend(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := s.read(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// lock opens the file at path, for this process alone.
func lock(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open record file: %w", err)
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("lock record file %s: another run writes to it: %w", path, err), file.Close())
		}
		// A run that ends takes an empty file away: it may have been this one.
		if there, err := isAt(file, path); err != nil {
			return nil, errors.Join(err, file.Close())
		} else if there {
			return file, nil
		}
		_ = file.Close() // nothing was written to it
	}
}

// isAt tells whether the open file is still the one at path.
func isAt(file *os.File, path string) (bool, error) {
	opened, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("open record file: %w", err)
	}
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open record file: %w", err)
	}
	return os.SameFile(opened, now), nil
}

// readStore looks at what dir holds, which may be nothing.
func readStore(dir string) (*store, error) {
	path := filepath.Join(dir, bench.RecordFile)
	s := &store{where: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record file: %w", err)
	}
	// The last line may be one that is cut off, or just being written.
	return s, s.read(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1]))
}

// writable says whether the record file could be written, without making it.
func writable(path string) error {
	for at := path; ; at = filepath.Dir(at) {
		err := unix.Access(at, unix.W_OK)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue // it would be made, by whoever may write to its directory
		}
		if err != nil {
			return fmt.Errorf("write record file %s: %s: %w", path, at, err)
		}
		return nil
	}
}

// mend moves a last line that has no end out of the file. Nothing is lost: it
// is kept beside.
func (s *store) mend() error {
	text, err := io.ReadAll(s.file)
	if err != nil {
		return fmt.Errorf("read record file: %w", err)
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if whole == len(text) {
		return nil
	}
	s.torn = filepath.Join(filepath.Dir(s.where), tornFile)
	torn, err := os.OpenFile(s.torn, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("keep a cut-off line: %w", err)
	}
	_, err = torn.Write(append(text[whole:], '\n'))
	if err := errors.Join(err, torn.Sync(), torn.Close()); err != nil {
		return fmt.Errorf("keep a cut-off line: %w", err)
	}
	if err := s.file.Truncate(int64(whole)); err != nil {
		return fmt.Errorf("take a cut-off line off the record file: %w", err)
	}
	return nil
}

func (s *store) read(r io.Reader) error {
	if f, ok := r.(io.Seeker); ok {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read record file: %w", err)
		}
	}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read record file %s: %w", s.where, err)
		}
		var w window
		if err := json.Unmarshal(line, &w); err != nil {
			return fmt.Errorf("read record file %s, line %d: %w; temper-lab verify tells more", s.where, n, err)
		}
		if w.Schema != bench.Schema {
			return fmt.Errorf("read record file %s, line %d: schema %d, this program writes %d: use another directory", s.where, n, w.Schema, bench.Schema)
		}
		if w.scenario, err = nameOf(w.Scenario); err != nil {
			return fmt.Errorf("read record file %s, line %d: scenario: %w", s.where, n, err)
		}
		if w.arm, err = nameOf(w.Arm); err != nil {
			return fmt.Errorf("read record file %s, line %d: arm: %w", s.where, n, err)
		}
		s.held = append(s.held, w)
	}
}

func nameOf(object json.RawMessage) (string, error) {
	var named struct {
		Name string `json:"name"`
	}
	err := json.Unmarshal(object, &named)
	return named.Name, err
}

// windows returns the indices of the steps that job has in the store. Windows of
// another campaign or place, or of the same scenario and topology that were measured
// otherwise, are an error: one directory never holds two sorts.
func (s *store) windows(c *Campaign, j job, build bench.Build) ([]int, error) {
	scenario, err := json.Marshal(c.Scenario)
	if err != nil {
		return nil, fmt.Errorf("encode scenario %s: %w", c.Scenario.Name, err)
	}
	arm, err := json.Marshal(j.arm)
	if err != nil {
		return nil, fmt.Errorf("encode arm %s: %w", j.arm.Name, err)
	}
	var have []int
	campaign := c.name()
	for _, w := range s.held {
		if w.Campaign != campaign {
			return nil, fmt.Errorf("go on in %s: it holds windows of campaign %s: give it that name again, or use another directory", filepath.Dir(s.where), w.Campaign)
		}
		if on := placeOf(w.Machine); on != c.Place {
			return nil, s.conflict("another place: they were measured --on %s, these would be --on %s", on, c.Place)
		}
		if w.scenario != c.Scenario.Name || w.Machine.Topology != c.Topology {
			continue
		}
		if c.Place != OnHost && w.Machine.KernelName != c.Kernel {
			return nil, s.conflict("kernel %q, these would be of %q", w.Machine.KernelName, c.Kernel)
		}
		if !bytes.Equal(w.Scenario, scenario) {
			return nil, s.conflict("scenario %s as it was described otherwise", w.scenario)
		}
		// All arms are measured by one client and one probe, and run one scheduler if any.
		if w.Build.Go != build.Go || w.Build.NodeSHA256 != build.NodeSHA256 || others(w.Build.TemperSHA256, build.TemperSHA256) || others(w.Build.AgentSHA256, build.AgentSHA256) {
			return nil, s.conflict("arm %s of another build", w.arm)
		}
		if w.arm != j.arm.Name {
			continue
		}
		if !bytes.Equal(w.Arm, arm) || w.Build != build {
			return nil, s.conflict("arm %s as it was described otherwise, or of another build", w.arm)
		}
		if w.Seed == j.seed && !slices.Contains(have, w.Window.Step.Index) {
			have = append(have, w.Window.Step.Index)
		}
	}
	return have, nil
}

// placeOf is where a machine's windows were measured.
func placeOf(m bench.Machine) Place {
	switch {
	case m.Clock != bench.ClockHost:
		return OnGuest
	case m.Accel == "":
		return OnHost
	}
	return OnKVM
}

// others says whether two hashes are of two programs; none is of no program.
func others(a, b string) bool { return a != "" && b != "" && a != b }

// void counts the job's windows in the store that enter no figure.
func (s *store) void(c *Campaign, j job) int {
	n := 0
	for _, w := range s.held {
		if w.scenario == c.Scenario.Name && w.Machine.Topology == c.Topology && w.arm == j.arm.Name && w.Seed == j.seed && !w.Verdict.Valid {
			n++
		}
	}
	return n
}

func (s *store) conflict(format string, args ...any) error {
	return fmt.Errorf("go on in %s: it holds windows of %s; use another directory", filepath.Dir(s.where), fmt.Sprintf(format, args...))
}

// errNotKept is of a run whose records the store did not take: it would not take the
// next one's either.
var errNotKept = errors.New("keep records")

// add appends a run's records at once and makes sure that they are on disk.
func (s *store) add(records []bench.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines bytes.Buffer
	for i := range records {
		r := &records[i]
		if err := s.matches(r.Scenario.Name, r.Machine); err != nil {
			return fmt.Errorf("%w: %w", errNotKept, err)
		}
		s.held = append(s.held, window{Campaign: r.Campaign, scenario: r.Scenario.Name, arm: r.Arm.Name, Machine: r.Machine})
		if err := bench.WriteRecord(&lines, r); err != nil {
			return err
		}
	}
	if err := s.write(lines.Bytes()); err != nil {
		return fmt.Errorf("%w: %w", errNotKept, err)
	}
	return nil
}

// write appends all of lines or nothing: a line that is cut off would take the next
// one with it.
func (s *store) write(lines []byte) error {
	before, err := s.file.Stat()
	if err != nil {
		return err
	}
	if _, err = s.file.Write(lines); err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return errors.Join(err, s.file.Truncate(before.Size()))
	}
	return nil
}

// matches refuses windows that cannot stand beside those that are there: a file has
// one clock, and a table one machine, whose kernel, emulator, plugin or packages may
// have been updated meanwhile, or which is started otherwise by now.
func (s *store) matches(scenario string, m bench.Machine) error {
	if len(s.held) > 0 && s.held[0].Machine.Clock != m.Clock {
		return s.conflict("another clock: they were timed by %q, these would be by %q", s.held[0].Machine.Clock, m.Clock)
	}
	i := slices.IndexFunc(s.held, func(w window) bool {
		return w.scenario == scenario && w.Machine.Topology == m.Topology
	})
	if i < 0 {
		return nil
	}
	if diff := verify.Apart(s.held[i].Machine, m); len(diff) > 0 {
		return s.conflict("another machine: %s", diff[0])
	}
	return nil
}

// close takes the file away if nothing was measured: it would be no record file.
func (s *store) close() error {
	var err error
	if st, bad := s.file.Stat(); bad == nil && st.Size() == 0 {
		err = os.Remove(s.where) // before the lock goes
	}
	if err := errors.Join(err, s.file.Close()); err != nil {
		return fmt.Errorf("close record file: %w", err)
	}
	return nil
}
