// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/temper-sched/temper/internal/policy"
)

// measuring is what shall be measured.
type measuring struct {
	on     bool
	own    bool // by plan, while the kernel's own scheduler runs
	attach int  // which attach it belongs to: the plan's maps are its
	plan   policy.Plan
}

// prober keeps the probe as the loop wants it, in a goroutine of its own:
// loading one can take longer than the dead-man waits. The newest wish counts.
type prober struct {
	want  chan measuring
	start func(own bool) (Probe, error)
	log   *slog.Logger
}

func newProber(start func(own bool) (Probe, error), log *slog.Logger) *prober {
	return &prober{want: make(chan measuring, 1), start: start, log: log}
}

// ask is called by the loop alone.
func (p *prober) ask(m measuring) {
	select {
	case <-p.want:
	default:
	}
	p.want <- m
}

func (p *prober) run(ctx context.Context) {
	var has measuring
	var probe Probe
	var failed bool
	retry := time.NewTicker(recheckEvery)
	defer retry.Stop()
	end := func() {
		if probe == nil {
			return
		}
		if err := probe.Close(); err != nil {
			p.log.WarnContext(ctx, "probe not ended", "err", err)
		}
		probe = nil
	}
	defer end()
	for want := has; ; {
		select {
		case <-ctx.Done():
			return
		case want = <-p.want:
		case <-retry.C:
		}
		if want.on != has.on || want.own != has.own || want.attach != has.attach {
			end()
			failed = false
		}
		has = want
		if !want.on {
			continue
		}
		err := p.bring(&probe, want)
		if err != nil && !failed {
			p.log.WarnContext(ctx, "nothing is measured", "err", err)
		}
		failed = err != nil
	}
}

// bring starts the probe if there is none, and gives it its plan.
func (p *prober) bring(probe *Probe, want measuring) error {
	if *probe == nil {
		started, err := p.start(want.own)
		if err != nil {
			return err
		}
		*probe = started
	}
	if want.own {
		return (*probe).Apply(want.plan)
	}
	return nil
}
