// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Schema is the version of the record format. Readers refuse others.
const Schema = 2

// RecordFile is the name of the file with a campaign's records.
const RecordFile = "records.jsonl"

// Record is one window and where it came from: one line of a record file.
type Record struct {
	Schema   int       `json:"schema"`
	Campaign string    `json:"campaign"` // its directory's name
	Scenario Scenario  `json:"scenario"`
	Arm      Arm       `json:"arm"`
	Seed     uint64    `json:"seed"`
	Order    int       `json:"order"` // the run's place in its campaign, from 0
	Plan     Plan      `json:"plan"`
	Commit   string    `json:"commit"`
	Started  time.Time `json:"started"` // of the run, by the host's clock
	Build    Build     `json:"build"`
	Machine  Machine   `json:"machine"`
	Host     Host      `json:"host"`
	Window   Window    `json:"window"`
	Verdict  Verdict   `json:"verdict"`
	// Digest is over what virtual time determines: see the function.
	Digest string `json:"digest"`
	// Checksum is the SHA-256 of the line without it.
	Checksum string `json:"checksum,omitempty"`
}

// Plan is what the campaign was to run of the record's scenario, so that a run that is
// missing is missed.
type Plan struct {
	Arms      []string `json:"arms"`
	SeedFirst uint64   `json:"seed_first"`
	Seeds     int      `json:"seeds"`
	// Topologies are all of them, where there are several.
	Topologies []string `json:"topologies,omitempty"`
}

// MaxSeeds is how many seeds a plan may have.
const MaxSeeds = 10_000

// Build is what the programs in the guest were made of.
type Build struct {
	Go           string `json:"go"`
	NodeSHA256   string `json:"node_sha256"` // of the program that drives the node
	TemperSHA256 string `json:"temper_sha256,omitempty"`
	// AgentSHA256 is of the node agent, where it is what is measured.
	AgentSHA256 string `json:"agent_sha256,omitempty"`
}

// Machine is the node that ran the window.
type Machine struct {
	Kernel        string   `json:"kernel"`                // uname -r
	KernelName    string   `json:"kernel_name,omitempty"` // as package guest calls it
	KernelPackage string   `json:"kernel_package"`        // Debian package and version
	Cmdline       string   `json:"cmdline"`               // /proc/cmdline
	Topology      string   `json:"topology"`
	Emulator      string   `json:"emulator,omitempty"`      // name and version
	EmulatorArgs  []string `json:"emulator_args,omitempty"` // as started, paths shortened to their base
	Accel         string   `json:"accel,omitempty"`         // "tcg" or "kvm"
	Clock         string   `json:"clock"`                   // one of the Clock… words
	ClockNote     string   `json:"clock_note,omitempty"`
	// ClockQuantum is how far the vCPUs' clocks may disagree, where each has its own.
	ClockQuantum time.Duration     `json:"clock_quantum_ns,omitempty"`
	Packages     map[string]string `json:"packages,omitempty"` // Debian package → version
	// InitrdSHA256 is of all that the guest booted with but its kernel, the
	// run's own description included; PluginSHA256 of the clock plugin.
	InitrdSHA256 string `json:"initrd_sha256,omitempty"`
	PluginSHA256 string `json:"plugin_sha256,omitempty"`
	// Cluster is whose node it is, where pods are not the laboratory's own.
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Cluster is what makes the pods of a Kubernetes node, and schedules them.
type Cluster struct {
	Kubelet string `json:"kubelet"` // its version
	Runtime string `json:"runtime"` // the container runtime's name and version
	Agent   string `json:"agent"`   // the digest of Temper's image
	Config  string `json:"config"`  // the agent's
}

// The clocks a window may have been timed by.
const (
	ClockPerVCPU = "per-vcpu" // virtual time, each vCPU its own instruction clock
	ClockShared  = "icount"   // virtual time, all vCPUs share one instruction clock
	ClockHost    = "host"     // real time
	// ClockOpen is ClockPerVCPU in a guest that talks to machines outside of it:
	// what they say comes when it comes, and no repetition gives the same.
	ClockOpen = "per-vcpu-open"
)

// Virtual says whether the same inputs give the same window again.
func (m Machine) Virtual() bool { return m.Clock == ClockPerVCPU || m.Clock == ClockShared }

// Host is the machine that ran the emulator, or the window itself. Under
// virtual time it is there for wall-clock cost only and enters no figure.
type Host struct {
	CPU     string  `json:"cpu"`
	CPUs    int     `json:"cpus"`
	Load1   float64 `json:"load1"`
	WallSec float64 `json:"wall_s"` // real seconds since the run's start
}

// Verdict says whether a record may be used, and if not, why.
type Verdict struct {
	Valid   bool     `json:"valid"`
	Reasons []string `json:"reasons,omitempty"`
}

// ID names a record within its campaign.
func (r *Record) ID() string {
	s := r.Window.Step
	id := fmt.Sprintf("%s/%s/%s/seed=%d/step=%d", r.Scenario.Name, r.Machine.Topology, r.Arm.Name, r.Seed, s.Index)
	if s.Point != "" {
		id += "/point=" + s.Point
	}
	return fmt.Sprintf("%s/spinners=%d", id, s.Density)
}

// Seal completes a record: verdict, digest and checksum.
func (r *Record) Seal() error {
	r.Schema, r.Verdict = Schema, Judge(r)
	if _, err := r.line(); err != nil {
		return fmt.Errorf("encode record %s: %w", r.ID(), err)
	}
	return nil
}

// WriteRecord appends r to w as one line, with digest and checksum.
func WriteRecord(w io.Writer, r *Record) error {
	line, err := r.line()
	if err != nil {
		return fmt.Errorf("encode record %s: %w", r.ID(), err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write record %s: %w", r.ID(), err)
	}
	return nil
}

// line computes digest and checksum and returns the record's line.
func (r *Record) line() ([]byte, error) {
	r.Digest, r.Checksum = "", ""
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if r.Digest, err = Digest(line); err != nil {
		return nil, err
	}
	if line, err = json.Marshal(r); err != nil {
		return nil, err
	}
	r.Checksum = checksum(line)
	return append(line[:len(line)-1], checksumMember(r.Checksum)...), nil
}

func checksum(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// checksumMember is how a line ends.
func checksumMember(sum string) string { return `,"checksum":"` + sum + `"}` }

// maxLine bounds a line of a record file.
const maxLine = 16 << 20

// Intact compares the line with its checksum and its record with its digest.
func (l Line) Intact() error {
	if l.Err != nil {
		return l.Err
	}
	end := checksumMember(l.Record.Checksum)
	body, ok := bytes.CutSuffix(bytes.TrimSpace(l.Text), []byte(end))
	if !ok || checksum(append(bytes.Clone(body), '}')) != l.Record.Checksum {
		return errors.New("its checksum is not the line's: it was changed after it was written")
	}
	digest, err := Digest(l.Text)
	if err != nil {
		return err
	}
	if digest != l.Record.Digest {
		return errors.New("its digest is not its content's: it was changed, and the checksum with it")
	}
	return nil
}

// Line is one line of a record file: a record, or why it is none.
type Line struct {
	Number int // from 1
	Text   []byte
	Record *Record
	Err    error
}

// ScanRecords calls visit with every line that is not empty. What is wrong with
// a line is in it; the error is of reading, or visit's.
func ScanRecords(r io.Reader, visit func(Line) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		line := Line{Number: n, Text: bytes.Clone(lines.Bytes())}
		line.Record, line.Err = ParseRecord(line.Text)
		if err := visit(line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read records, line %d: %w", n, err)
	}
	return nil
}

// ParseRecord reads one line. A record of another schema, with fields that this
// one has not, or with percentiles that are not its histogram's, is refused.
func ParseRecord(text []byte) (*Record, error) {
	members, err := membersOf(text)
	if err != nil {
		return nil, fmt.Errorf("parse record: %w", err)
	}
	var schema int
	if err := json.Unmarshal(members["schema"], &schema); err != nil {
		return nil, fmt.Errorf("parse record: schema: %w", err)
	}
	if schema != Schema {
		return nil, fmt.Errorf("parse record: schema %d, this program knows %d", schema, Schema)
	}
	var rec Record
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		return nil, fmt.Errorf("parse record: %w", err)
	}
	if dec.More() {
		return nil, fmt.Errorf("parse record %s: something follows it", rec.ID())
	}
	return &rec, nil
}

// membersOf returns a line's members, each of which it must have once, by its own name.
// A decoder takes "Window" for "window" and the last of two, but the digest is made of
// the one that is named exactly so: figures could hide in the other.
func membersOf(text []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return nil, fmt.Errorf("member %q is none of a record's", name)
		}
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("it has member %q twice", name)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if twice := repeated(value); twice != "" {
			return nil, fmt.Errorf("it has member %q twice", name+"."+twice)
		}
		members[name] = value
	}
	return members, nil
}

// repeated names a member that an object below value has twice, in whatever case, for
// which a decoder takes the last; "" if there is none. The value is valid JSON.
func repeated(value json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var objects []map[string]bool // of each that is open; nil for an array
	key := false                  // a member's name comes next
	for {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				objects = append(objects, map[string]bool{})
			case '[':
				objects = append(objects, nil)
			default:
				objects = objects[:len(objects)-1]
			}
		case string:
			if key {
				name := strings.ToLower(t)
				seen := objects[len(objects)-1]
				if seen[name] {
					return t
				}
				seen[name], key = true, false
				continue
			}
		}
		key = len(objects) > 0 && objects[len(objects)-1] != nil
	}
}

// ErrUnsound is a record file that is not what the laboratory wrote: no figure is made
// of it.
var ErrUnsound = errors.New("records are not sound")

// EachRecord calls visit with every record of a file, one at a time: decoded,
// a campaign is a thousand times its file. A line that is not a record of this
// schema, or was changed, fails the whole file, with its number.
func EachRecord(r io.Reader, visit func(*Record) error) error {
	return ScanRecords(r, func(l Line) error {
		if err := l.Intact(); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrUnsound, l.Number, err)
		}
		return visit(l.Record)
	})
}

// ReadRecords returns all records of a file.
func ReadRecords(r io.Reader) ([]Record, error) {
	var records []Record
	err := EachRecord(r, func(rec *Record) error {
		records = append(records, *rec)
		return nil
	})
	return records, err
}
