// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Schema is the version of the record format. Readers refuse others.
const Schema = 1

// RecordFile is the name of the file with a campaign's records.
const RecordFile = "records.jsonl"

// Record is one window and where it came from: one line of a record file.
type Record struct {
	Schema   int       `json:"schema"`
	Scenario Scenario  `json:"scenario"`
	Arm      Arm       `json:"arm"`
	Seed     uint64    `json:"seed"`
	Order    int       `json:"order"` // the run's place in its campaign, from 0
	Commit   string    `json:"commit"`
	Started  time.Time `json:"started"` // of the run, by the host's clock
	Machine  Machine   `json:"machine"`
	Host     Host      `json:"host"`
	Window   Window    `json:"window"`
	Verdict  Verdict   `json:"verdict"`
}

// Machine is the node that ran the window.
type Machine struct {
	Kernel        string   `json:"kernel"`         // uname -r
	KernelPackage string   `json:"kernel_package"` // Debian package and version
	Cmdline       string   `json:"cmdline"`        // /proc/cmdline
	Topology      string   `json:"topology"`
	Emulator      string   `json:"emulator"`      // name and version
	EmulatorArgs  []string `json:"emulator_args"` // as started, paths shortened to their base
	Accel         string   `json:"accel"`         // "tcg" or "kvm"
	Clock         string   `json:"clock"`         // one of the Clock… words
	ClockNote     string   `json:"clock_note,omitempty"`
	// ClockQuantum is how far the vCPUs' clocks may disagree, where each has its own.
	ClockQuantum time.Duration     `json:"clock_quantum_ns,omitempty"`
	Packages     map[string]string `json:"packages"` // Debian package → version
}

// The clocks a window may have been timed by.
const (
	ClockPerVCPU = "per-vcpu" // virtual time, each vCPU its own instruction clock
	ClockShared  = "icount"   // virtual time, all vCPUs share one instruction clock
	ClockHost    = "host"     // real time
)

// Host is the machine that ran the emulator, for wall-clock cost only: under
// virtual time it does not enter any figure.
type Host struct {
	CPU     string  `json:"cpu"`
	CPUs    int     `json:"cpus"`
	Load1   float64 `json:"load1"`
	WallSec float64 `json:"wall_s"` // real seconds since the run's start
}

// Window is one step of the ladder as the node measured it.
type Window struct {
	Density int           `json:"density"`
	Client  Client        `json:"client"`
	Ledger  Ledger        `json:"ledger"`
	Sched   []SchedSample `json:"sched"`
	// Weights are the cpu.weight values in force, by cgroup path.
	Weights map[string]int `json:"weights"`
	// IdleBefore is the share of idle CPU time before the first client
	// started, the proof that boot work had ended.
	IdleBefore float64 `json:"idle_before"`
}

// Client is what the load generator saw, and what it says of itself.
type Client struct {
	Offered  float64 `json:"offered_rps"`  // arrivals drawn for the window
	Achieved float64 `json:"achieved_rps"` // answers received within it
	Latency  *Hist   `json:"latency"`      // answer minus intended send time
	// Lag is actual minus intended send time: what the client itself added.
	Lag *Hist `json:"lag"`
	// RunDelay is how long the client was runnable and not running in the window.
	RunDelay time.Duration `json:"run_delay_ns"`
	Requests int           `json:"requests"` // due in the window
	Lost     int           `json:"lost"`     // of them, never answered
	Wrong    int           `json:"wrong"`    // answered with something else, at any time
	// Slowest are the window's slowest answers, slowest first: where to look
	// when the tail has an outlier.
	Slowest []Slow `json:"slowest"`
}

// Slow is one slow answer.
type Slow struct {
	Due     time.Duration `json:"due_ns"` // since the window's start
	Latency time.Duration `json:"latency_ns"`
	Lag     time.Duration `json:"lag_ns"` // of it, added by the client
	Conn    int           `json:"conn"`
}

// Ledger is where the node's CPU time went between two readings. Idle comes
// from the CPUs' own books and everything else from the threads', so that the
// sum is a check of both.
type Ledger struct {
	Length     time.Duration `json:"length_ns"`
	CPUs       int           `json:"cpus"`     // of the node
	PodCPUs    int           `json:"pod_cpus"` // that pods may use
	Critical   time.Duration `json:"critical_ns"`
	Background time.Duration `json:"background_ns"`
	Instrument time.Duration `json:"instrument_ns"` // the client and the reader of these counters
	System     time.Duration `json:"system_ns"`     // all else outside pods: agents, kernel threads
	Idle       time.Duration `json:"idle_ns"`       // no thread ran; interrupts taken meanwhile included
}

// BackgroundCPUs is how many CPUs' worth of time background work got.
func (l Ledger) BackgroundCPUs() float64 { return ratio(l.Background, l.Length) }

// CriticalCPUs is the same for the critical pod.
func (l Ledger) CriticalCPUs() float64 { return ratio(l.Critical, l.Length) }

// Harvest is background's share of the time that critical and system work left
// on the pods' CPUs, in [0,1].
func (l Ledger) Harvest() float64 {
	left := l.Length*time.Duration(l.PodCPUs) - l.Critical - l.System
	return ratio(l.Background, left)
}

// Error is how far the parts are from the whole, as a share of it.
func (l Ledger) Error() float64 {
	parts := l.Critical + l.Background + l.Instrument + l.System + l.Idle
	return ratio(parts, l.Length*time.Duration(l.CPUs)) - 1
}

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// SchedSample is the identity of the scheduler at one moment.
type SchedSample struct {
	At        time.Duration `json:"at_ns"` // since the window's start
	State     string        `json:"state"` // "" on a kernel without sched_ext
	Ops       string        `json:"ops"`
	EnableSeq uint64        `json:"enable_seq"`
}

// Verdict says whether a record may be used, and if not, why.
type Verdict struct {
	Valid   bool     `json:"valid"`
	Reasons []string `json:"reasons,omitempty"`
}

// WriteRecord appends r to w as one line.
func WriteRecord(w io.Writer, r *Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record %s: %w", r.ID(), err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write record %s: %w", r.ID(), err)
	}
	return nil
}

// ReadRecords reads a record file. A line that is not a record of this schema
// fails the whole file, with its number.
func ReadRecords(r io.Reader) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("read record in line %d: %w", n, err)
		}
		if rec.Schema != Schema {
			return nil, fmt.Errorf("read record in line %d: schema %d, this program knows %d", n, rec.Schema, Schema)
		}
		if rec.Window.Client.Latency == nil || rec.Window.Client.Lag == nil {
			return nil, fmt.Errorf("read record in line %d: no histogram", n)
		}
		records = append(records, rec)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	return records, nil
}

// ID names a record within its campaign.
func (r *Record) ID() string {
	return fmt.Sprintf("%s/%s/seed=%d/spinners=%d", r.Scenario.Name, r.Arm.Name, r.Seed, r.Window.Density)
}
