// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/node"
	"github.com/temper-sched/temper/internal/guest"
)

// Where the programs lie in the guest.
const (
	nodePath   = "/opt/temper-lab-node"
	temperPath = "/opt/temper"
	agentPath  = "/opt/temper-agent"
	execDir    = "/opt/exec"
	execConfig = "/opt/exec.config"
	execLibs   = "/opt/exec.lib"
)

// A guest may take this much real time: boot and attach, and so much for each
// second of its own time. A slow host with other work on it needs a tenth; filling
// a database takes minutes there.
const (
	guestBase  = 30 * time.Minute
	guestRatio = 120
)

// bound is how much real time the scenario may take.
func (c *Campaign) bound() time.Duration {
	l := c.Scenario.Load
	return guestBase + guestRatio*time.Duration(len(c.Scenario.Steps()))*l.Total()
}

// attempt is one run in progress.
type attempt struct {
	*Campaign
	job
	build bench.Build
	have  []int // steps that an earlier attempt measured
	keep  func([]bench.Record) error

	started time.Time
	hello   node.Hello
	held    []bench.Record // complete but for the machine's description
	told    int            // windows heard of, those that are there included
}

// run carries out the run and keeps its records.
func (a *attempt) run(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, a.bound(), fmt.Errorf("it took more than %v", a.bound()))
	defer stop()
	a.started = time.Now()
	var machine bench.Machine
	var err error
	if a.Place == OnHost {
		machine, err = a.onHost(ctx)
	} else {
		machine, err = a.onGuest(ctx)
	}
	if err == nil && a.told != len(a.Scenario.Steps()) {
		err = fmt.Errorf("it ended after %d of %d windows", a.told, len(a.Scenario.Steps()))
	}
	// What a run measured before it failed was measured all the same.
	void := 0
	for i := range a.held {
		describe(&a.held[i].Machine, machine)
		a.held[i].Verdict = bench.Judge(&a.held[i])
		if !a.held[i].Verdict.Valid {
			void++
		}
	}
	if len(a.held) > 0 {
		err = errors.Join(err, a.keep(a.held))
	}
	a.tell(Update{Arm: a.arm.Name, Seed: a.seed, Ended: &Ended{
		Windows: len(a.held), Void: void, Took: time.Since(a.started), Err: err,
	}})
	return err
}

// onGuest boots one guest and turns what it tells into records.
func (a *attempt) onGuest(ctx context.Context) (bench.Machine, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd, err := a.command(a.job)
	if err != nil {
		return bench.Machine{}, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, in := io.Pipe()
	cmd.Stdout = in
	a.tell(Update{Arm: a.arm.Name, Seed: a.seed, Text: "booting a guest"})
	heard := make(chan error, 1)
	go func() {
		err := a.listen(out)
		cancel(err) // a guest that nobody listens to is of no use
		_ = out.CloseWithError(err)
		heard <- err
	}()
	err = cmd.Run(ctx)
	_ = in.Close() // closing this end of a pipe cannot fail
	if err = cause(err, <-heard); err != nil {
		err = fmt.Errorf("%w%s", err, tail(stderr.String()))
	}
	machine := MachineOf(cmd.Provenance())
	if a.Place == OnKVM && machine.Accel != "kvm" && err == nil {
		err = errors.New("KVM does not work on this machine: /dev/kvm is missing, or a guest does not boot with it")
		a.held = nil // emulated in real time, they mean nothing
	}
	return machine, err
}

// cause is the one of the guest's error and the listener's that brought the other
// about. A guest that ends in the middle of an event cuts it off.
func cause(ran, heard error) error {
	if heard == nil || ran != nil && errors.Is(heard, io.ErrUnexpectedEOF) {
		return ran
	}
	return heard
}

// tail shows the end of what the node's programs complained about.
func tail(stderr string) string {
	stderr = strings.TrimSpace(stderr)
	if stderr == "" {
		return ""
	}
	return "; the node said: " + stderr[max(0, len(stderr)-2000):]
}

// seedStride parts the guest seeds of an arm and of its repetition.
const seedStride = 1_000_000

// command describes the guest of one run. All arms share kernel, memory and
// topology; only the arm's own words on the kernel's command line differ.
func (c *Campaign) command(j job) (*guest.Cmd, error) {
	topology, err := guest.ParseTopology(c.Topology)
	if err != nil {
		return nil, err
	}
	spec := node.Spec{Scenario: c.Scenario, Arm: j.arm, Seed: j.seed, CPUs: topology.CPUs(), Temper: temperPath}
	files := map[string]string{nodePath: c.Node}
	if j.arm.Ops == "temper" {
		files[temperPath] = c.Temper
	}
	if c.Scenario.KindOf().Agent {
		spec.Agent, files[agentPath] = agentPath, c.Agent
	}
	if e := j.arm.Exec; e != nil {
		if err := bring(&spec, files, e); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode run: %w", err)
	}
	seed := int(j.seed)
	if j.arm.Again {
		seed += seedStride
	}
	mode := guest.Deterministic
	if c.Place == OnKVM {
		mode = guest.Functional
	}
	cmd := guest.Command(guest.Machine{
		Kernel: c.Kernel, Topology: c.Topology, Mode: mode, Append: j.arm.Cmdline, Seed: seed,
		Packages: c.Scenario.Packages(), Files: files, Clock: c.Clock,
	}, nodePath, "run")
	cmd.Stdin = bytes.NewReader(text)
	cmd.Log = c.Log
	return cmd, nil
}

// bring puts a user's scheduler on the guest, with the libraries it needs.
func bring(spec *node.Spec, files map[string]string, e *bench.Exec) error {
	spec.Exec = path.Join(execDir, e.Program)
	files[spec.Exec] = e.Path
	if e.Config != "" {
		spec.ExecConfig = execConfig
		files[execConfig] = e.Config
	}
	loader, libs, err := libraries(e.Path)
	if err != nil || loader == "" {
		return err
	}
	for _, lib := range libs {
		files[path.Join(execLibs, path.Base(lib))] = lib
	}
	files[path.Join(execLibs, path.Base(loader))] = loader
	spec.ExecLoader = []string{path.Join(execLibs, path.Base(loader)), "--library-path", execLibs}
	return nil
}

// listen reads events until the node's half ends.
func (a *attempt) listen(out io.Reader) error {
	for events := json.NewDecoder(out); ; {
		var e node.Event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		a.hear(e)
	}
}

// hear takes one event.
func (a *attempt) hear(e node.Event) {
	u := Update{Arm: a.arm.Name, Seed: a.seed}
	switch {
	case e.Hello != nil:
		a.hello = *e.Hello
		u.Text = "kernel " + e.Hello.Kernel + " is up"
	case e.Progress != "":
		u.Text = e.Progress
	case e.Window != nil:
		a.told++
		if slices.Contains(a.have, e.Window.Step.Index) {
			return // measured by an earlier attempt
		}
		rec := a.record(e.Window)
		a.held = append(a.held, rec)
		u.Record = &rec
	}
	a.tell(u)
}
