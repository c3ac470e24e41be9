// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/topology"
)

// world is a node that the tests play: its kernel, its cgroups and its cluster.
// The loop and the test take turns at it.
type world struct {
	mu      sync.Mutex
	start   time.Time
	state   sched.State
	checks  []sched.Check
	refuses error // what an attach fails of
	stuck   error // what a detach fails of
	support policy.LimitSupport
	limits  []policy.Limit
	unheld  uint64 // of the kernel side's limits
	held    []sched.LimitStats
	paths   map[uint64]string // of cgroups
	used    map[string]time.Duration
	places  map[string]Place
	cpus    int
	blind   bool          // cgroups cannot be read
	mute    bool          // the state cannot be read
	other   bool          // what is attached at first is another build's
	full    bool          // no plan is taken
	slow    time.Duration // what an attach takes

	attaches []time.Duration // since the start of the test
	detaches []time.Duration
	beats    []time.Duration
	applied  []policy.Plan
	marks    []kube.Condition
	engine   string
	events   []kube.Event
	deaf     bool            // the API server takes nothing
	ownProbe bool            // the agent measures by a plan of its own
	sweeps   []time.Duration // of all pins
	probes   int             // how often remains of a probe were removed

	tell    func(kube.Snapshot)
	started chan struct{}
	changed func()
}

func newWorld() *world {
	return &world{
		start: time.Now(), started: make(chan struct{}), places: map[string]Place{}, cpus: 4,
		state:   sched.State{Kernel: "disabled"},
		support: policy.LimitSupport{Told: true, Most: 100, Depth: 4},
	}
}

// do changes or looks at the world.
func (w *world) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) since() time.Duration { return time.Since(w.start) }

func (w *world) machine() Machine {
	return Machine{
		Kernel: "7.2", BootID: "this",
		Uptime: func() time.Duration { return time.Hour + w.since() },
		Topology: func() (topology.Topology, error) {
			var t topology.Topology
			w.do(func() {
				for id := range w.cpus {
					t.CPUs = append(t.CPUs, topology.CPU{ID: id, Core: id, Online: true})
				}
			})
			return t, nil
		},
		Preflight:    func() (c []sched.Check) { w.do(func() { c = slices.Clone(w.checks) }); return c },
		LimitSupport: func() (s policy.LimitSupport, err error) { w.do(func() { s = w.support }); return s, nil },
		ReadState:    w.State,
		Attach:       w.attach,
		Open:         func() (Engine, error) { return &fakeEngine{world: w}, nil },
		Measure:      w.measure,
		Measured:     func() (sched.Stats, error) { return sched.Stats{}, nil },
		Sweep:        func() error { w.do(func() { w.sweeps = append(w.sweeps, w.since()) }); return nil },
		SweepProbe:   func() error { w.do(func() { w.probes++ }); return nil },
	}
}

func (w *world) State() (s sched.State, err error) {
	w.do(func() {
		if s = w.state; w.mute {
			err = syscall.EIO
		}
	})
	return s, err
}

func (w *world) attach(ctx context.Context, cfg sched.Config) (Engine, error) {
	var slow time.Duration
	w.do(func() { slow = w.slow })
	time.Sleep(slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.Ops != "" && !sched.IsOurs(w.state.Ops) {
		return nil, &sched.Error{Reason: sched.ForeignScheduler, Err: errors.New(w.state.Ops)}
	}
	if w.refuses != nil {
		return nil, w.refuses
	}
	e := &fakeEngine{world: w, adopted: w.state.Attached && !w.other}
	if !e.adopted {
		if ctx.Err() != nil && slow == 0 { // later it loads already
			return nil, ctx.Err()
		}
		w.other = false
		w.state = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name, DeadMan: cfg.DeadMan}
	}
	w.attaches = append(w.attaches, w.since())
	return e, nil
}

// run attaches as a temper run does, which holds the node until the release.
func (w *world) run(t *testing.T, dir string) *Lock {
	t.Helper()
	lock, err := HoldNode(dir, AsRun)
	if err != nil {
		t.Fatal(err)
	}
	w.do(func() { w.state = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name} })
	return lock
}

// eject ends the scheduler; the exit record comes after the delay.
func (w *world) eject(reason sched.Reason, message string, delay time.Duration) {
	w.do(func() { w.state.Attached, w.state.Kernel, w.state.Ops = false, "disabled", "" })
	time.Sleep(delay)
	w.do(func() { w.state.Exit = &sched.Exit{At: time.Hour + w.since(), Reason: reason, Message: message} })
}

type fakeEngine struct {
	*world
	adopted bool
}

func (e *fakeEngine) Heartbeat() error {
	e.do(func() { e.beats = append(e.beats, e.since()) })
	return nil
}

func (e *fakeEngine) Plan() (p policy.Plan, err error) {
	e.do(func() {
		if n := len(e.applied); n > 0 {
			p = e.applied[n-1]
		}
	})
	return p, nil
}

func (e *fakeEngine) Apply(p policy.Plan) (err error) {
	e.do(func() {
		if e.full {
			err = syscall.E2BIG
			return
		}
		e.state.Generation++
		e.applied = append(e.applied, p)
	})
	return err
}

func (e *fakeEngine) Generation() (n uint64, err error) {
	e.do(func() { n = e.state.Generation })
	return n, nil
}

func (e *fakeEngine) Detach() (err error) {
	e.do(func() {
		if err = e.stuck; err != nil {
			return
		}
		e.state = sched.State{Kernel: "disabled"}
		e.detaches = append(e.detaches, e.since())
	})
	return err
}

func (e *fakeEngine) LimitsNotHeld() (n uint64, err error) {
	e.do(func() { n = e.unheld })
	return n, nil
}

func (e *fakeEngine) Limits() (l []sched.LimitStats, err error) {
	e.do(func() { l = slices.Clone(e.held) })
	return l, nil
}

func (e *fakeEngine) Stats() (sched.Stats, error) { return sched.Stats{}, nil }
func (e *fakeEngine) SetLimit(policy.Limit) error { return nil }
func (e *fakeEngine) Adopted() bool               { return e.adopted }
func (e *fakeEngine) Close() error                { return nil }

func (w *world) measure(own bool) (Probe, error) {
	p := fakeProbe{w, own}
	w.do(func() { w.ownProbe = w.ownProbe || own })
	return p, nil
}

type fakeProbe struct {
	*world
	own bool
}

func (fakeProbe) Apply(policy.Plan) error { return nil }

func (p fakeProbe) Close() error {
	p.do(func() { p.ownProbe = p.ownProbe && !p.own })
	return nil
}

type fakeCgroups struct{ *world }

func (c fakeCgroups) Look() ([]policy.Group, map[string]Place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blind {
		return nil, nil, errors.New("input/output error")
	}
	places := map[string]Place{}
	maps.Copy(places, c.places)
	return []policy.Group{{Cgroup: "/kubepods", ID: 1, Tier: 2, EachChild: true}}, places, nil
}

func (c fakeCgroups) Limits() (l []policy.Limit, err error) {
	c.do(func() { l = slices.Clone(c.limits) })
	return l, nil
}

func (c fakeCgroups) Paths() (paths map[uint64]string, err error) {
	c.do(func() { paths = maps.Clone(c.paths) })
	return paths, nil
}

func (c fakeCgroups) Usage(paths []string) (used map[string]time.Duration, err error) {
	c.do(func() {
		used = maps.Clone(c.used)
		maps.DeleteFunc(used, func(p string, _ time.Duration) bool { return !slices.Contains(paths, p) })
	})
	return used, nil
}

func (c fakeCgroups) Watch(ctx context.Context, changed func()) error {
	c.do(func() { c.changed = changed })
	<-ctx.Done()
	return nil
}

type fakeCluster struct{ *world }

func (c fakeCluster) Run(ctx context.Context, changed func(kube.Snapshot)) error {
	c.tell = changed
	close(c.started)
	<-ctx.Done()
	return nil
}

func (c fakeCluster) SetCondition(ctx context.Context, want kube.Condition) error {
	return c.take(ctx, func() {
		if n := len(c.marks); n == 0 || c.marks[n-1] != want {
			c.marks = append(c.marks, want)
		}
	})
}

func (c fakeCluster) SetEngine(ctx context.Context, e string) error {
	return c.take(ctx, func() { c.engine = e })
}

func (c fakeCluster) Event(ctx context.Context, e kube.Event) error {
	return c.take(ctx, func() { c.events = append(c.events, e) })
}

// take hangs like a server that is away.
func (c fakeCluster) take(ctx context.Context, f func()) error {
	var deaf bool
	c.do(func() {
		if deaf = c.deaf; !deaf {
			f()
		}
	})
	if !deaf {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	return errors.New("no answer")
}

// ready is a node that kubelet says is ready, with pods.
func ready(pods ...policy.Pod) kube.Snapshot {
	return kube.Snapshot{Node: kube.Node{Ready: true, BootID: "this"}, Connected: true, Pods: pods}
}

// play runs an agent in a world until the scene has ended.
func play(t *testing.T, change func(*Config), set func(*world), scene func(t *testing.T, a *Agent, w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		set(w)
		cfg := Config{Agent: config.DefaultAgent(), Node: "n1", Build: "b1", RunDir: dir}
		cfg.Mode = config.Enforce
		change(&cfg)
		ctx, stop := context.WithCancel(t.Context())
		a := New(cfg, w.machine(), fakeCgroups{w}, fakeCluster{w}, slog.New(slog.DiscardHandler))
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		<-w.started
		scene(t, a, w)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func asIs(*Config)   {}
func healthy(*world) {}

func (w *world) plans() (n int) {
	w.do(func() { n = len(w.applied) })
	return n
}

func (w *world) lastPlan() (p policy.Plan) {
	w.do(func() { p = w.applied[len(w.applied)-1] })
	return p
}

// now is what the node's condition says.
func (w *world) now() (c kube.Condition) {
	synctest.Wait()
	w.do(func() {
		if n := len(w.marks); n > 0 {
			c = w.marks[n-1]
		}
	})
	return c
}

func (w *world) expect(t *testing.T, reason string) {
	t.Helper()
	if got := w.now(); got.Reason != reason || got.Ready != (reason == ReasonAttached) {
		t.Fatalf("after %v the condition is %+v, want %s", w.since(), got, reason)
	}
}

// told are the Events so far, by reason.
func (w *world) told() (reasons []string) {
	synctest.Wait()
	w.do(func() {
		for _, e := range w.events {
			reasons = append(reasons, e.Reason)
		}
	})
	return reasons
}

// lastEvent is what the last Event of that reason says.
func (w *world) lastEvent(reason string) (message string) {
	synctest.Wait()
	w.do(func() {
		for _, e := range w.events {
			if e.Reason == reason {
				message = e.Message
			}
		}
	})
	return message
}

func (w *world) count(of *[]time.Duration) (n int) {
	synctest.Wait()
	w.do(func() { n = len(*of) })
	return n
}

func pod(n int) policy.Pod {
	return policy.Pod{UID: fmt.Sprint("pod", n), Namespace: "shop", Name: fmt.Sprint("p", n), Tier: 3}
}

func (w *world) place(n int) {
	w.do(func() {
		w.places[fmt.Sprint("pod", n)] = Place{Cgroup: fmt.Sprint("/kubepods/pod", n), ID: uint64(100 + n)}
	})
}
