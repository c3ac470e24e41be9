// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// roundsPerLook is how many round trips lie between two looks at the clock.
const roundsPerLook = 64

// handover is a pair of threads that hand a word to and fro: on one CPU every
// hand-over is a switch, on two a wakeup of an idle CPU.
type handover struct {
	there, back [2]int // pipes
}

// pipe counts hand-overs in the window, exactly.
func (w *work) pipe() error {
	if w.spec.Threads != 2 {
		return fmt.Errorf("prepare %s: %d threads, want 2", w.spec.Kind, w.spec.Threads)
	}
	var h handover
	for _, p := range []*[2]int{&h.there, &h.back} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("create pipe: %w", err)
		}
	}
	w.part = func(t *thread) {
		if t.id == 0 {
			h.serve(t)
		} else {
			h.answer(t)
		}
	}
	w.figures = func(r *bench.Result) { pipeFigures(r, w.threads[0], w.threads[1]) }
	return nil
}

func pipeFigures(r *bench.Result, server, partner *thread) {
	// A round trip hands over twice.
	ops := 2 * server.ops
	r.Ops = uint64(ops)
	r.Requests = int(ops)
	if span := server.last - server.first; span > 0 && ops > 0 {
		r.Achieved = float64(ops) / (float64(span) / 1e9)
		r.Values[ValuePerOp] = float64(span) / float64(ops)
		r.Values[ValueSwitches] = float64(server.nSwitches) / float64(server.nRounds)
	}
	if server.seen != partner.seen {
		r.Wrong = int(max(server.seen-partner.seen, partner.seen-server.seen))
	}
}

//go:norace
//go:nosplit
func (h *handover) serve(t *thread) {
	t.sleepUntil(t.plan.begin)
	now := t.now()
	var switchesAtFirst, roundsAtFirst int64
	for now < t.plan.to {
		if t.first == 0 && now >= t.plan.from {
			switchesAtFirst, roundsAtFirst = t.switches(), t.seen
			now = t.now()
			t.first = now
		}
		t.mark(now)
		for range roundsPerLook {
			if !t.write(h.there[1], 1) || !t.read(h.back[0]) {
				return
			}
			t.seen++
		}
		now = t.now()
		if t.first != 0 && now <= t.plan.to {
			t.ops += roundsPerLook
			t.last = now
		}
	}
	t.nSwitches, t.nRounds = t.switches()-switchesAtFirst, t.seen-roundsAtFirst
	t.mark(t.plan.to)
	t.write(h.there[1], 0)
}

//go:norace
//go:nosplit
func (h *handover) answer(t *thread) {
	for t.read(h.there[0]) && t.value() != 0 {
		t.seen++
		if !t.write(h.back[1], 1) {
			return
		}
	}
}
