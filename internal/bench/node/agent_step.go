// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/sched"
)

const (
	// stockEvery is how often the kernel is asked whose scheduler runs: as exact
	// as that figure is.
	stockEvery = 500 * time.Microsecond
	// agentLead is the time until the window, in which the counters are read.
	agentLead = 50 * time.Millisecond
	// strikeAfter is how far into the window something happens once.
	strikeAfter = 100 * time.Millisecond
)

// agentStep is a step in progress.
type agentStep struct {
	*agentNode
	step     bench.Step
	from, to time.Duration
	result   bench.Result
	samples  []bench.SchedSample
	done     chan error
}

func (s *agentStep) span() (from, to time.Duration) { return s.from, s.to }

// begin starts what the step's point says, at the window's start.
func (a *agentNode) begin(ctx context.Context, step bench.Step) (window, error) {
	runtime.GC()
	l := a.node.spec.Scenario.Load
	from := monotonic() + l.Warmup + l.Pad + agentLead
	s := &agentStep{
		agentNode: a, step: step, from: from, to: from + l.Window,
		result: bench.Result{Values: map[string]float64{}},
		done:   make(chan error, 1),
	}
	go func() { s.done <- s.act(ctx) }()
	return s, nil
}

// end waits until all has happened that the step is for.
func (s *agentStep) end() (bench.Result, []bench.SchedSample, error) {
	if err := <-s.done; err != nil {
		return s.result, nil, err
	}
	return s.result, s.samples, nil
}

func (s *agentStep) act(ctx context.Context) error {
	if err := sleep(ctx, s.from-monotonic()); err != nil {
		return err
	}
	before, err := s.node.tree.usage(agent)
	if err != nil {
		return err
	}
	began := monotonic()
	switch s.step.Point {
	case bench.PointQuiet:
	case bench.PointScraped:
		err = s.scrape(ctx)
	default:
		err = s.change(ctx)
	}
	if err != nil {
		return err
	}
	if err := sleep(ctx, s.to-monotonic()); err != nil {
		return err
	}
	s.samples = append(s.samples, sampleSched(s.from))
	return s.footprint(before, began)
}

// change has happen what the point says, under the eye of a watcher. When it is
// over, the spinners beside it end: nothing more is measured.
func (s *agentStep) change(ctx context.Context) (err error) {
	watching, enough := context.WithCancel(ctx)
	stock := make(chan stockTime, 1)
	go func() { stock <- watchStock(watching) }()
	switch s.step.Point {
	case bench.PointRestart:
		err = s.replace(ctx, s.agent.Path, syscall.SIGTERM, syscall.SIGKILL)
	case bench.PointUpgrade:
		err = s.replace(ctx, s.other, syscall.SIGTERM)
	case bench.PointEject:
		err = s.eject(ctx)
	default:
		err = s.storm(ctx)
	}
	enough()
	seen := <-stock
	s.result.Values[bench.ValueStock] = float64(seen.sum)
	return errors.Join(err, seen.err, s.node.setBackground(ctx, 0))
}

// footprint is what the agent used since. One that was replaced in the window
// has not the whole of it.
func (s *agentStep) footprint(before, began time.Duration) error {
	after, err := s.node.tree.usage(agent)
	if err != nil {
		return err
	}
	s.result.Values[bench.ValueAgentCPUs] = float64(after-before) / float64(monotonic()-began)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.agent.Process.Pid))
	if err != nil {
		return fmt.Errorf("read size of agent: %w", err)
	}
	peak, err := parsePeak(string(text))
	s.result.Values[bench.ValueAgentPeak] = peak
	return err
}

// parsePeak finds the most that a process had resident, in bytes.
func parsePeak(status string) (float64, error) {
	for line := range strings.Lines(status) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parse VmHWM: %w", err)
			}
			return float64(n << 10), nil
		}
	}
	return 0, fmt.Errorf("no VmHWM in status %q", status)
}

// scrape reads the agent's metrics once a second, as nobody does more often.
func (s *agentStep) scrape(ctx context.Context) error {
	for at := s.from; at < s.to; at += time.Second {
		if err := sleep(ctx, at-monotonic()); err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agentPort+"/metrics", nil)
		if err != nil {
			return fmt.Errorf("scrape agent: %w", err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return fmt.Errorf("scrape agent: %w", err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			return fmt.Errorf("scrape agent: %w", err)
		}
	}
	return nil
}

// replace ends the agent by each signal in turn and starts program in its place.
func (s *agentStep) replace(ctx context.Context, program string, by ...syscall.Signal) error {
	longest := time.Duration(0)
	for _, signal := range by {
		if err := sleep(ctx, strikeAfter); err != nil {
			return err
		}
		began := monotonic()
		if err := s.endAgent(ctx, signal); err != nil {
			return err
		}
		if err := s.startAgent(ctx, program); err != nil {
			return err
		}
		longest = max(longest, monotonic()-began)
	}
	s.result.Values[bench.ValueStarts], s.result.Values[bench.ValueAlone] = float64(len(by)), float64(longest)
	return nil
}

// eject has the kernel take the scheduler away, and waits for it to come back.
func (s *agentStep) eject(ctx context.Context) error {
	if err := sleep(ctx, strikeAfter); err != nil {
		return err
	}
	was := sampleSched(s.from).EnableSeq
	began := monotonic()
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("S"), 0); err != nil {
		return fmt.Errorf("eject scheduler: %w", err)
	}
	says := func() bool { return s.api.Condition()["reason"] == string(sched.EjectedSysRq) }
	if err := s.await(ctx, "the node says that it was ejected", says); err != nil {
		return err
	}
	s.result.Values[bench.ValueNoticed] = float64(monotonic() - began)
	back := func() bool {
		now := sampleSched(s.from)
		return now.State == "enabled" && now.EnableSeq > was
	}
	if err := s.await(ctx, "the scheduler is back", back); err != nil {
		return err
	}
	s.result.Values[bench.ValueBack] = float64(monotonic() - began)
	return nil
}

// stockTime is for how long no sched_ext scheduler ran.
type stockTime struct {
	sum time.Duration
	err error
}

// watchStock looks until ctx ends. A time that is shorter than one look may be
// missed, or count as one.
func watchStock(ctx context.Context) (t stockTime) {
	state, err := os.Open(schedFiles[0])
	if err != nil {
		return stockTime{err: fmt.Errorf("watch scheduler: %w", err)}
	}
	defer state.Close()
	t.err = inRealTime(func() error {
		var text [32]byte
		for last := monotonic(); ctx.Err() == nil; {
			if err := sleepUntil(context.WithoutCancel(ctx), last+stockEvery); err != nil {
				return err
			}
			n, err := state.ReadAt(text[:], 0)
			if n == 0 {
				return fmt.Errorf("read state of sched_ext: %w", err)
			}
			now := monotonic()
			if strings.TrimSpace(string(text[:n])) != "enabled" {
				t.sum += now - last
			}
			last = now
		}
		return nil
	})
	return t
}
