// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/work"
	"github.com/temper-sched/temper/internal/topology"
)

// selfMeasured is a primary that measures itself: work programs in the critical
// pod and in the pods that the scenario lists.
type selfMeasured struct{ node *node }

// The operating points that choose what a primary does, rather than how much.
const (
	pointTimer   = "timer"    // wakeup: by a timer
	pointEventfd = "eventfd"  // wakeup: by another thread
	pointOneCPU  = "one-cpu"  // pipe: both threads on one CPU
	pointTwoCPUs = "two-cpus" // pipe: each on one of its own
	pointAnyCPU  = "any-cpu"  // pipe: where the scheduler likes
)

// program is one work program: where it lives and what it does.
type program struct {
	name      string // of its part of the result, "" for the critical pod's
	pod       string
	container string // "" for the pod's only one
	spec      work.Spec
}

func (s *selfMeasured) start(context.Context) error {
	if n := s.node; n.spec.Scenario.Primary.Kind == "pipe" && len(n.topology.Cores()) < 2 {
		return errors.New("start pipe: two cores are needed")
	}
	return nil
}

// micros is a parameter that is given in µs.
func micros(p bench.Primary, name string) time.Duration {
	return time.Duration(p.Params[name] * float64(time.Microsecond))
}

// programs returns what runs at a step besides spinners.
func (s *selfMeasured) programs(step bench.Step) ([]program, error) {
	n := s.node
	p, l := n.spec.Scenario.Primary, n.spec.Scenario.Load
	spec := work.Spec{
		Threads: p.Threads, Rate: step.Rate, Seed: n.spec.seedAt(step),
		Warmup: l.Warmup + l.Pad, Window: l.Window, Tail: 2 * l.Pad,
	}
	switch p.Kind {
	case "wakeup":
		spec.Kind = step.Point
		if step.Point != pointTimer && step.Point != pointEventfd {
			return nil, fmt.Errorf("start wakeup: point %q is neither %s nor %s", step.Point, pointTimer, pointEventfd)
		}
	case "burst":
		spec.Kind, spec.Work = work.KindBurst, micros(p, "burst_us")
	case "weights":
		if step.Rate == 0 {
			return nil, nil // nobody critical beside
		}
		spec.Kind, spec.Work = work.KindBurst, micros(p, "burst_us")
	case "bursty":
		spec.Kind, spec.Work = work.KindPhases, micros(p, "unit_us")
		spec.Busy, spec.Idle = micros(p, "busy_us"), micros(p, "idle_us")
	case "pipe":
		spec.Kind = work.KindPipe
		cores := n.topology.Cores()
		switch step.Point {
		case pointOneCPU:
			spec.CPUs = [][]int{{cores[0][0]}, {cores[0][0]}}
		case pointTwoCPUs:
			spec.CPUs = [][]int{{cores[0][0]}, {cores[1][0]}}
		case pointAnyCPU:
		default:
			return nil, fmt.Errorf("start pipe: point %q is none of %s, %s, %s", step.Point, pointOneCPU, pointTwoCPUs, pointAnyCPU)
		}
	case "requests":
		return s.requests(spec), nil
	case "hackbench":
		spec.Kind = work.KindCommand
		groups, loops := int(p.Params["groups"]), int(p.Params["loops"])
		spec.Command = []string{hackbench, "-g", strconv.Itoa(groups), "-l", strconv.Itoa(loops)}
		// Twenty senders write to each of twenty receivers.
		spec.Ops = uint64(groups * 20 * 20 * loops)
	case "starvation":
		return s.starved(step, spec)
	default:
		return nil, fmt.Errorf("start primary: kind %q measures nothing by itself", p.Kind)
	}
	return []program{{pod: critical, spec: spec}}, nil
}

// hackbench is the scheduler's old benchmark, of Debian's rt-tests.
const hackbench = "/usr/bin/hackbench"

// starved returns a program for each listed pod, which notes when it did not run.
func (s *selfMeasured) starved(step bench.Step, spec work.Spec) ([]program, error) {
	var out []program
	for _, p := range s.node.at(step) {
		if p.spec.Name == "" {
			continue // critical, or a spinner
		}
		of := spec
		of.Kind, of.Threads, of.Work = work.KindGaps, p.spec.Threads, micros(s.node.spec.Scenario.Primary, "unit_us")
		if p.spec.CPUs != "" {
			cpus, err := topology.ParseList(p.spec.CPUs)
			if err != nil {
				return nil, fmt.Errorf("bind pod %s: %w", p.Name, err)
			}
			for range of.Threads {
				of.CPUs = append(of.CPUs, cpus)
			}
		}
		out = append(out, program{name: p.Name, pod: p.path, spec: of})
	}
	return out, nil
}

// running is a step of a self-measured primary in progress.
type running struct {
	from, to time.Duration
	programs []*runningProgram
	spinning []*exec.Cmd
	lower    func() error // this process's priority
	scenario bench.Scenario
	traces   []work.Trace // by program
}

type runningProgram struct {
	program
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// workLead is the time between the announcement of the beginning and the
// beginning.
const workLead = 20 * time.Millisecond

// begin starts the programs, waits until all are ready, and fixes the window.
func (s *selfMeasured) begin(ctx context.Context, step bench.Step) (_ window, err error) {
	n := s.node
	programs, err := s.programs(step)
	if err != nil {
		return nil, err
	}
	r := &running{scenario: n.spec.Scenario}
	defer func() {
		if err != nil {
			r.kill()
		}
	}()
	for _, p := range programs {
		started, err := n.startProgram(ctx, p)
		if err != nil {
			return nil, err
		}
		r.programs = append(r.programs, started)
	}
	if n.starves() {
		if err := n.settleBackground(ctx, step.Density); err != nil {
			return nil, err
		}
	}
	if r.lower, err = raise(); err != nil {
		return nil, err
	}
	if err := s.spin(ctx, step, r); err != nil {
		return nil, err
	}
	l := n.spec.Scenario.Load
	begin := monotonic() + workLead
	r.from, r.to = work.Spec{Warmup: l.Warmup + l.Pad, Window: l.Window}.Span(begin)
	for _, p := range r.programs {
		if err := json.NewEncoder(p.in).Encode(work.Go{Begin: begin}); err != nil {
			return nil, fmt.Errorf("start %s: %w", p.spec.Kind, err)
		}
	}
	return r, nil
}

// spin starts the spinners that are the primary's own.
func (s *selfMeasured) spin(ctx context.Context, step bench.Step, r *running) error {
	n := s.node
	spin := func(pod string, threads int) error {
		for range threads {
			cmd, err := n.spin(ctx, pod)
			if err != nil {
				return err
			}
			r.spinning = append(r.spinning, cmd)
		}
		return nil
	}
	switch p := n.spec.Scenario.Primary; p.Kind {
	case "starvation":
		return spin(critical, p.Threads)
	case "weights":
		for _, pod := range n.at(step) {
			if pod.spec.Name == "" {
				continue
			}
			if err := spin(pod.path, pod.spec.Threads); err != nil {
				return err
			}
		}
	}
	return nil
}

// startProgram runs this program again as a work program and waits until it is
// ready.
func (n *node) startProgram(ctx context.Context, p program) (*runningProgram, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "work")
	// Nothing of the runtime's own may interrupt a measured thread.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.spec.Kind, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.spec.Kind, err)
	}
	if err := n.tree.start(cmd, p.cgroup()); err != nil {
		return nil, err
	}
	r := &runningProgram{program: p, cmd: cmd, in: in, out: json.NewDecoder(out)}
	if err := json.NewEncoder(in).Encode(p.spec); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.spec.Kind, errors.Join(err, cmd.Wait()))
	}
	var ready work.Ready
	if err := r.out.Decode(&ready); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.spec.Kind, errors.Join(err, cmd.Wait()))
	}
	return r, nil
}

func (r *running) span() (from, to time.Duration) { return r.from, r.to }

// kill ends what would not end by itself.
func (r *running) kill() {
	for _, cmd := range r.spinning {
		end(cmd)
	}
	for _, p := range r.programs {
		end(p.cmd)
	}
}

// end returns what the programs saw, put together.
func (r *running) end() (bench.Result, []bench.SchedSample, error) {
	// Whoever starves could not end either.
	for _, cmd := range r.spinning {
		end(cmd)
	}
	if err := r.lower(); err != nil {
		return bench.Result{}, nil, err
	}
	total := bench.Result{}
	for _, p := range r.programs {
		var result work.Outcome
		if err := p.out.Decode(&result); err != nil {
			return total, nil, fmt.Errorf("read result of %s: %w", p.spec.Kind, errors.Join(err, p.cmd.Wait()))
		}
		if err := p.cmd.Wait(); err != nil {
			return total, nil, fmt.Errorf("end %s: %w", p.spec.Kind, err)
		}
		if result.Trace != nil {
			r.traces = append(r.traces, *result.Trace)
		}
		if p.name == "" {
			return result.Result, nil, nil
		}
		total = join(total, p.name, result.Result)
		if p.spec.Kind == work.KindRequests {
			total = joinRequests(total, result.Result)
		}
	}
	return total, nil, nil
}

// slowest keeps the slowest of all, slowest first.
func slowest(all []bench.Slow) []bench.Slow {
	const most = 8
	slices.SortStableFunc(all, func(a, b bench.Slow) int { return cmp.Compare(b.Latency, a.Latency) })
	return slices.Clone(all[:min(len(all), most)])
}

// join adds one pod's result to those of others: its distribution stands under
// its name too, its figures under its name only.
func join(total bench.Result, name string, r bench.Result) bench.Result {
	if total.Parts == nil {
		total.Parts, total.Values = map[string]*bench.Hist{}, map[string]float64{}
	}
	if r.Latency != nil {
		if total.Latency == nil {
			total.Latency = bench.NewHist()
		}
		total.Latency.Merge(r.Latency)
		total.Parts[name] = r.Latency
	}
	total.Requests += r.Requests
	total.Lost += r.Lost
	total.Wrong += r.Wrong
	total.Ops += r.Ops
	total.Slowest = slowest(append(total.Slowest, r.Slowest...))
	for key, value := range maps.All(r.Values) {
		total.Values[name+"_"+key] = value
	}
	return total
}
