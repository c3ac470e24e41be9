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
	// Looks are reads of the state: a played agent knows by it that a command saw it.
	Looks int
	// Limits are handed out with the readings, the first one also to status.
	Limits        [][]sched.LimitStats
	LimitsNotHeld uint64
	LimitsSet     []policy.Limit // by SetLimit, one after the other
	// Staged is true after an attach that was killed before it published its pins.
	Staged bool
	// Unreadable is what a handle's State fails with.
	Unreadable string
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
			var state sched.State
			err := k.update(func(h *held) error {
				h.Looks++
				state = h.State
				if h.Unpinned {
					state.Exit = nil
				}
				return nil
			})
			return state, err
		},
		clear:        k.clear,
		limitSupport: k.limitSupport,

		sysfs:   filepath.Join(k.dir, "sys"),
		cgroups: filepath.Join(k.dir, "cgroup"),
		runDir:  filepath.Join(k.dir, "run"),
		letGo:   k.letGo(),
	}
}

func (k kernel) clear(string) (found bool, err error) {
	err = k.update(func(h *held) error {
		if found = h.Staged; found {
			h.Staged = false
			h.end(sched.Stopped, "unregistered from user space")
		}
		return nil
	})
	return found, err
}

// letGo is longer than any script, unless the file hurry is there.
func (k kernel) letGo() time.Duration {
	if _, err := os.Stat(filepath.Join(k.dir, "hurry")); err == nil {
		return 100 * time.Millisecond
	}
	return time.Minute
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// preflight answers what preflight.json says, else that all is well.
func (k kernel) preflight(pinDir string) []sched.Check {
	checks := []sched.Check{
		{Name: "sched_ext in the kernel", OK: true, Detail: "7.2.13"},
		{Name: "bpffs to pin the scheduler in", OK: true, Detail: filepath.Dir(pinDir)},
	}
	if text, err := os.ReadFile(filepath.Join(k.dir, "preflight.json")); err == nil {
		if err := json.Unmarshal(text, &checks); err != nil {
			panic(err)
		}
	}
	return checks
}

// limitSupport answers what support.json says, else that the kernel tells.
func (k kernel) limitSupport() (policy.LimitSupport, error) {
	can := policy.LimitSupport{Told: true, Most: 4095, Depth: 4}
	text, err := os.ReadFile(filepath.Join(k.dir, "support.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return can, nil
	}
	if err != nil {
		return can, err
	}
	return can, json.Unmarshal(text, &can)
}

func (k kernel) attach(_ context.Context, cfg sched.Config) (engine, error) {
	for _, c := range k.preflight(cfg.PinDir) {
		if !c.OK {
			return nil, &refusal{c.Reason, c.Fix, errors.New(c.Detail)}
		}
	}
	if text, err := os.ReadFile(filepath.Join(k.dir, "refusal.json")); err == nil {
		var c sched.Check
		if err := json.Unmarshal(text, &c); err != nil {
			panic(err)
		}
		return nil, translate(&sched.Error{Reason: c.Reason, Fix: c.Fix, Err: errors.New(c.Detail)})
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
	if h.Unreadable != "" {
		err = errors.New(h.Unreadable)
	}
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

func (e *scripted) Limits() ([]sched.LimitStats, error) {
	h, err := e.kernel.read()
	if len(h.Limits) == 0 {
		return nil, err
	}
	return h.Limits[min(max(h.Reads-1, 0), len(h.Limits)-1)], err
}

func (e *scripted) LimitsNotHeld() (uint64, error) {
	h, err := e.kernel.read()
	return h.LimitsNotHeld, err
}

func (e *scripted) SetLimit(l policy.Limit) error {
	return e.kernel.update(func(h *held) error {
		h.LimitsSet = append(h.LimitsSet, l)
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

// limitReadings go with readings: the cgroup of that id, limited to 1.5 CPUs,
// waits for half of the second, and one that is gone had nothing to wait for.
func limitReadings(id uint64) [][]sched.LimitStats {
	before := sched.LimitStats{
		ID: id, Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond, Used: 10 * time.Second, KernelUsage: 11 * time.Second,
		PacedPeriods: 20, Paced: 2 * time.Second, LongestWait: 9 * time.Millisecond, LongestStop: 700 * time.Microsecond, Debt: 3 * time.Millisecond,
	}
	after := before
	after.Used += 1490 * time.Millisecond
	after.KernelUsage += 1500 * time.Millisecond
	after.Paced += 500 * time.Millisecond
	after.PacedPeriods += 6
	after.Waits, after.Waiting = 400, 7
	after.Debt += 250 * time.Microsecond
	gone := sched.LimitStats{ID: 1 << 60, Quota: time.Millisecond, Period: 100 * time.Millisecond, Burst: 20 * time.Millisecond}
	return [][]sched.LimitStats{{before, gone}, {after, gone}}
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
