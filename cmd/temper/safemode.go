// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/sched"
)

func newSafeMode(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "safe-mode on|off",
		Short: "Take the node from the node agent, or give it back",
		Long: `Take the node from the node agent, or give it back.

While safe mode is on, the agent keeps the scheduler off and removes what it
pinned, within a second. It needs no API server: the agent looks for a file in
/run/temper. The same as an annotation, from afar: kubectl annotate node NAME
temper.dev/safe-mode=true. A "temper run" does not look at safe mode, and the agent
leaves it alone.

"on" waits, ten seconds at most, until nothing of Temper is attached. It fails if
something still is, and says who holds the node and what takes it off. Safe mode is
on then, too.

Safe mode lasts until it is switched off, or the node reboots. Switching it on and
off also ends the latch that five ejects within an hour leave.`,
		Example:   "  temper safe-mode on\n  temper safe-mode off",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"on", "off"},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return action(func(cmd *cobra.Command) error {
			if args[0] == "off" {
				return n.endSafeMode()
			}
			if err := n.beginSafeMode(); err != nil {
				return err
			}
			return n.awaitSafe(cmd.Context(), pinDir(cmd))
		})(cmd, args)
	}
	return cmd
}

func (n node) endSafeMode() error {
	if err := os.Remove(agent.SafeModeFile(n.runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end safe mode: %w", err)
	}
	fmt.Fprintln(n.stdout, "temper: safe mode is off")
	return nil
}

func (n node) beginSafeMode() error {
	if err := os.MkdirAll(n.runDir, 0o755); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	if err := os.WriteFile(agent.SafeModeFile(n.runDir), nil, 0o644); err != nil {
		return fmt.Errorf("begin safe mode: %w", err)
	}
	return nil
}

// awaitSafe returns when nothing of Temper is attached, or to be attached.
func (n node) awaitSafe(ctx context.Context, pinDir string) error {
	end := time.After(n.letGo)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for waiting := false; ; waiting = true {
		t, err := n.tenancy(pinDir)
		if err != nil {
			return fmt.Errorf("safe mode is asked for, and whether the node is free is not known: %w", err)
		}
		if !t.attached && t.holder == nil {
			fmt.Fprintln(n.stdout, "temper: safe mode is on, "+t.free())
			return nil
		}
		if t.byRun() {
			return t.failure()
		}
		if !waiting {
			fmt.Fprintln(n.stdout, "temper: safe mode is asked for, waiting until the node agent lets go of this node")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until the node agent lets go: %w", ctx.Err())
		case <-end:
			return t.failure()
		case <-ticker.C:
		}
	}
}

// tenancy is who has the node.
type tenancy struct {
	state    sched.State
	attached bool
	holder   *agent.BusyError // nil: no process holds the node
	agent    bool             // one runs here, holding the node or not
}

func (n node) tenancy(pinDir string) (t tenancy, err error) {
	t.state, err = n.readState(pinDir)
	if err != nil && !errors.Is(err, sched.ErrOtherBuild) { // whose name is known all the same
		return t, fmt.Errorf("read state: %w", err)
	}
	t.attached = t.state.Attached || sched.IsOurs(t.state.Ops)
	if t.holder, err = agent.Holder(n.runDir); err != nil {
		return t, err
	}
	t.agent, err = agent.Attended(n.runDir)
	return t, err
}

func (t tenancy) byRun() bool { return t.holder != nil && t.holder.Role == agent.AsRun }

// free says who runs the node that Temper does not.
func (t tenancy) free() string {
	text := "the kernel's own scheduler runs this node"
	if t.state.Ops != "" {
		text = t.state.Ops + " runs this node"
	}
	if !t.agent {
		text += "; no agent runs here, and one that comes attaches nothing"
	}
	return text
}

// failure says who did not let go, and what helps.
func (t tenancy) failure() error {
	silent := ""
	if t.attached && t.state.DeadMan > 0 {
		silent = fmt.Sprintf("; the last report is %s old, the dead-man waits for %s", view.Short(t.state.HeartbeatAge), t.state.DeadMan)
	}
	switch {
	case t.byRun():
		return &failure{
			code: exitBusy, err: fmt.Errorf("safe mode is on, and process %s, a temper run, has the node: it does not look at safe mode", t.holder.Owner),
			fix: "temper stop, which ends that run",
		}
	case t.holder != nil || t.agent:
		return &failure{
			code: exitBusy, err: errors.New("safe mode is asked for, and the node agent does not let go of the node" + silent),
			fix: "temper stop takes the scheduler off; then see why the agent does not answer: kubectl temper doctor, its pod's log",
		}
	}
	return &failure{
		code: exitError, err: errors.New("safe mode is on, and the scheduler is attached: no process looks after it" + silent),
		fix: "temper stop; without it the dead-man ends it",
	}
}
