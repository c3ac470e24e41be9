// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// kernel is a node without sched_ext that plays one: what the real kernel
// would hold lives in a file, so that it outlives the processes of a script.
type kernel struct{ dir string }

// held is the file's content.
type held struct {
	State sched.State
	Plan  policy.Plan
	Stats []sched.Stats // readings, handed out in turn
	Reads int
	// Unpinned is true after a stop: nobody but who had a handle learns of the end.
	Unpinned bool
}

func (k kernel) file() string { return filepath.Join(k.dir, "kernel.json") }

func (k kernel) read() (held, error) {
	var h held
	err := k.locked(func() error { return k.load(&h) })
	return h, err
}

// update changes the kernel's state, one process at a time.
func (k kernel) update(change func(*held) error) error {
	return k.locked(func() error {
		var h held
		if err := k.load(&h); err != nil {
			return err
		}
		if err := change(&h); err != nil {
			return err
		}
		text, err := json.Marshal(h)
		if err != nil {
			return err
		}
		return os.WriteFile(k.file(), text, 0o644)
	})
}

func (k kernel) load(h *held) error {
	text, err := os.ReadFile(k.file())
	if errors.Is(err, fs.ErrNotExist) {
		h.State.Kernel = "disabled"
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, h)
}

func (k kernel) locked(do func() error) error {
	f, err := os.OpenFile(filepath.Join(k.dir, "kernel.lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// node is the test machine: sysfs, cgroups and run directory are below dir, too.
func (k kernel) node() node {
	return node{
		stdout:    os.Stdout,
		stderr:    os.Stderr,
		log:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
		preflight: k.preflight,
		attach:    k.attach,
		open:      k.open,
		readState: func(string) (sched.State, error) {
			h, err := k.read()
			if h.Unpinned {
				h.State.Exit = nil
			}
			return h.State, err
		},
		sysfs:   filepath.Join(k.dir, "sys"),
		cgroups: filepath.Join(k.dir, "cgroup"),
		runDir:  filepath.Join(k.dir, "run"),
	}
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// preflight answers what preflight.json says, else that all is well.
func (k kernel) preflight() []sched.Check {
	checks := []sched.Check{{Name: "sched_ext in the kernel", OK: true, Detail: "7.2.13"}}
	if text, err := os.ReadFile(filepath.Join(k.dir, "preflight.json")); err == nil {
		if err := json.Unmarshal(text, &checks); err != nil {
			panic(err)
		}
	}
	return checks
}

func (k kernel) attach(_ context.Context, cfg sched.Config) (engine, error) {
	for _, c := range k.preflight() {
		if !c.OK {
			return nil, &refusal{c.Reason, c.Fix, errors.New(c.Detail)}
		}
	}
	e := &scripted{kernel: k}
	return e, k.update(func(h *held) error {
		e.adopted = h.State.Attached
		if h.State.Ops != "" && !h.State.Attached {
			return &refusal{sched.ForeignScheduler, "stop it", errors.New(h.State.Ops + " is loaded")}
		}
		if !e.adopted {
			h.State = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name, EnableSeq: h.State.EnableSeq + 1}
		}
		h.State.DeadMan, h.Unpinned = cfg.DeadMan, false
		return nil
	})
}

func (k kernel) open(string) (engine, error) {
	h, err := k.read()
	if err == nil && (h.Unpinned || h.State.EnableSeq == 0) {
		err = errNotAttached
	}
	return &scripted{kernel: k}, err
}

// scripted is the engine of the playing kernel.
type scripted struct {
	kernel  kernel
	adopted bool
}

func (e *scripted) Adopted() bool { return e.adopted }

func (e *scripted) Apply(p policy.Plan) error {
	return e.kernel.update(func(h *held) error {
		h.State.Generation++
		h.Plan = policy.Plan{Lend: p.Lend}
		for _, g := range p.Groups { // the kernel knows ids only
			g.Cgroup, g.NotFenced = "", ""
			h.Plan.Groups = append(h.Plan.Groups, g)
		}
		return nil
	})
}

func (e *scripted) Plan() (policy.Plan, error) {
	h, err := e.kernel.read()
	return h.Plan, err
}

func (e *scripted) Heartbeat() error { return nil }

func (e *scripted) State() (sched.State, error) {
	h, err := e.kernel.read()
	return h.State, err
}

func (e *scripted) Measure() (io.Closer, error) { return io.NopCloser(nil), nil }

func (e *scripted) Stats() (s sched.Stats, err error) {
	return s, e.kernel.update(func(h *held) error {
		s = h.Stats[min(h.Reads, len(h.Stats)-1)]
		h.Reads++
		return nil
	})
}

func (e *scripted) Detach() error {
	return e.kernel.update(func(h *held) error {
		h.Unpinned = true
		if h.State.Attached {
			h.end(sched.Stopped, "unregistered from user space")
		}
		return nil
	})
}

func (e *scripted) Close() error { return nil }

// end detaches for that reason.
func (h *held) end(reason sched.Reason, message string) {
	h.State.Attached, h.State.Kernel, h.State.Ops = false, "disabled", ""
	h.State.Exit = &sched.Exit{Reason: reason, Message: message}
}

// readings are two snapshots of a busy node of two CPUs, one second apart.
func readings() []sched.Stats {
	before := sched.Stats{At: 10 * time.Second, WaitBound: time.Second, CPUs: []sched.CPUTime{{CPU: 0}, {CPU: 1}}}
	after := before
	after.At += time.Second
	after.CPUs = []sched.CPUTime{{CPU: 0}, {CPU: 1}}
	after.CPUs[0].Buckets[sched.BucketOwn] = 500 * time.Millisecond
	after.CPUs[0].Buckets[sched.BucketLent] = 250 * time.Millisecond
	after.CPUs[0].Buckets[sched.BucketIdle] = 250 * time.Millisecond
	after.CPUs[1].Buckets[sched.BucketBackground] = time.Second
	after.Tiers[0].CPU = 500 * time.Millisecond
	after.Tiers[0].Preemptions = 40
	after.Tiers[0].WorstWait = 120 * time.Microsecond
	after.Tiers[3].CPU = 1250 * time.Millisecond
	after.Tiers[3].Preempted = 40
	after.Tiers[3].WorstWait = 12 * time.Millisecond
	return []sched.Stats{before, after}
}
