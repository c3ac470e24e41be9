// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// KindCommand is another program, which does a known number of operations and
// ends.
const KindCommand = "command"

// ValueElapsed is how long the command took.
const ValueElapsed = "elapsed_ns"

// command runs the program in the window and counts the CPU time of all its
// processes: in virtual time, that is the instructions they took, in the kernel
// and outside. What it says goes into no figure.
func command(ctx context.Context, spec Spec, begin time.Duration) (bench.Result, error) {
	var r bench.Result
	from, to := spec.Span(begin)
	t := &thread{}
	t.sleepUntil(int64(from))
	cmd := exec.CommandContext(ctx, spec.Command[0], spec.Command[1:]...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := t.now()
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("run %s: %w; it said: %s", spec.Command[0], err, strings.TrimSpace(said.String()))
	}
	ended := t.now()
	busy := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	r.Ops, r.Requests = spec.Ops, 1
	r.Values = map[string]float64{
		ValueBusy: float64(busy), ValueElapsed: float64(ended - started), ValuePerOp: float64(busy) / float64(spec.Ops),
	}
	r.Achieved = float64(spec.Ops) / (float64(ended-started) / 1e9)
	if ended > int64(to) {
		r.Lost = 1 // not all of it was in the window
	}
	return r, nil
}

func (s Spec) validateCommand() error {
	if len(s.Command) == 0 || s.Ops == 0 {
		return errors.New("prepare command: no command, or of no operations")
	}
	return nil
}
