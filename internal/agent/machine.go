// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/topology"
)

// Machine is the kernel of the node. Tests put another in its place.
type Machine struct {
	Kernel string // its release
	BootID string
	// Uptime counts from the boot, time asleep included.
	Uptime       func() time.Duration
	Topology     func() (topology.Topology, error)
	Preflight    func() []sched.Check
	LimitSupport func() (policy.LimitSupport, error)
	ReadState    func() (sched.State, error)
	Attach       func(context.Context, sched.Config) (Engine, error)
	// Open returns a handle on what is pinned, alive or not.
	Open func() (Engine, error)
	// Measure starts the probe: by the attached scheduler's plan, or by its own.
	Measure func(own bool) (Probe, error)
	// Measured returns what the probe measured that runs by its own plan.
	Measured func() (sched.Stats, error)
	// Sweep removes what killed processes left pinned, and SweepProbe what is left of
	// a probe that ran by its own plan. Nobody may be at these pins.
	Sweep      func() error
	SweepProbe func() error
}

// Engine is the attached scheduler.
type Engine interface {
	State() (sched.State, error)
	Heartbeat() error
	Plan() (policy.Plan, error)
	Apply(policy.Plan) error
	Generation() (uint64, error) // of the plan in force
	Stats() (sched.Stats, error)
	Limits() ([]sched.LimitStats, error)
	LimitsNotHeld() (uint64, error)
	SetLimit(policy.Limit) error
	Adopted() bool
	Detach() error
	Close() error
}

// Probe measures until it is closed.
type Probe interface {
	Apply(policy.Plan) error
	Close() error
}

// Cgroups are those of the node's pods.
type Cgroups interface {
	// Look returns the groups above the pods, and by UID where the pods are now.
	Look() (defaults []policy.Group, pods map[string]Place, err error)
	Limits() ([]policy.Limit, error)
	// Paths returns the path of every cgroup by its id.
	Paths() (map[uint64]string, error)
	// Usage returns the CPU time that the kernel counted for each of these
	// cgroups, but for those that are gone.
	Usage(paths []string) (map[string]time.Duration, error)
	// Watch calls changed whenever cgroups of pods come or go, until ctx ends.
	Watch(ctx context.Context, changed func()) error
}

// Place is where a pod is.
type Place struct {
	Cgroup    string
	ID        uint64
	Exclusive []int // CPUs that kubelet gave to it alone
}

// Cluster is the API server.
type Cluster interface {
	Run(ctx context.Context, changed func(kube.Snapshot)) error
	SetCondition(context.Context, kube.Condition) error
	SetEngine(context.Context, string) error
	Event(context.Context, kube.Event) error
}

// LiveMachine is the machine this process runs on.
func LiveMachine(pinDir string) Machine {
	return Machine{
		Kernel:       kernelRelease(),
		BootID:       bootID(),
		Uptime:       uptime,
		Topology:     (&liveTopology{}).read,
		Preflight:    func() []sched.Check { return sched.Preflight(pinDir) },
		LimitSupport: sched.LimitSupport,
		ReadState:    func() (sched.State, error) { return sched.ReadState(pinDir) },
		Attach: func(ctx context.Context, cfg sched.Config) (Engine, error) {
			s, err := sched.Attach(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Open: func() (Engine, error) {
			s, err := sched.Open(pinDir)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Measure:  func(own bool) (Probe, error) { return measure(pinDir, own) },
		Measured: func() (sched.Stats, error) { return measured(pinDir) },
		Sweep: func() error {
			return errors.Join(sched.Sweep(pinDir), sched.SweepProbe(ownProbeDir(pinDir)))
		},
		SweepProbe: func() error { return sched.SweepProbe(ownProbeDir(pinDir)) },
	}
}

// ownProbeDir is not where the attached scheduler's probe is pinned: that one is
// of whoever holds the node, which may be a temper run.
func ownProbeDir(pinDir string) string { return pinDir + "_own_probe" }

// measure uses a handle of its own: loading the probe may take longer than the
// loop's one lives.
func measure(pinDir string, own bool) (Probe, error) {
	if own {
		if err := os.MkdirAll(filepath.Dir(pinDir), 0o700); err != nil {
			return nil, fmt.Errorf("create pin directory: %w", err)
		}
		p, err := sched.StartProbe(sched.ProbeConfig{PinDir: ownProbeDir(pinDir)})
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	s, err := sched.Open(pinDir)
	if err != nil {
		return nil, err
	}
	p, err := s.Measure()
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return p, nil
}

func measured(pinDir string) (sched.Stats, error) {
	p, err := sched.OpenProbe(ownProbeDir(pinDir))
	if err != nil {
		return sched.Stats{}, err
	}
	stats, err := p.Read()
	return stats, errors.Join(err, p.Close())
}

// liveTopology reads sysfs again only when CPUs came or went.
type liveTopology struct {
	online string
	known  topology.Topology
}

func (t *liveTopology) read() (topology.Topology, error) {
	online, err := os.ReadFile(filepath.Join(topology.Root, "cpu", "online"))
	if err != nil {
		return topology.Topology{}, fmt.Errorf("read online CPUs: %w", err)
	}
	if string(online) == t.online {
		return t.known, nil
	}
	top, err := topology.Read(os.DirFS(topology.Root))
	if err != nil {
		return topology.Topology{}, fmt.Errorf("read topology: %w", err)
	}
	t.online, t.known = string(online), top
	return top, nil
}

func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every kernel that runs Go has this clock
	}
	return time.Duration(ts.Nano())
}

func kernelRelease() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(uts.Release[:])
}

// bootID is empty where it cannot be read: then any boot is taken for this one.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
