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

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/sched"
)

// detachWithin is how long the kernel may take to hand all threads back. It
// takes half a second on a slow emulated machine.
const detachWithin = 10 * time.Second

func newStop(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Return the node to the kernel's own scheduler",
		Long: `Detach the scheduler, remove what it pinned, and check that the kernel's own
scheduler runs the node. A "temper run" that watches ends, too.

Stopping what is not attached is no error. Another scheduler is left alone.`,
		Example: "  temper stop",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = action(func(cmd *cobra.Command) error { return n.stop(cmd.Context(), pinDir(cmd)) })
	return cmd
}

func (n node) stop(ctx context.Context, pinDir string) error {
	e, err := n.open(pinDir)
	if errors.Is(err, errNotAttached) {
		if err := n.clearRemains(ctx, pinDir); err != nil {
			return err
		}
		return n.nothingToStop(pinDir)
	}
	if err != nil {
		return fmt.Errorf("open scheduler: %w", err)
	}
	defer e.Close()
	// Whatever cannot be read, the pins are there, and that is enough: a node can
	// always be freed.
	before, err := e.State()
	attached := before.Attached || err != nil
	if err := n.detach(ctx, e, pinDir); err != nil {
		return err
	}
	if !attached { // ejected: only its pins were left
		return n.nothingToStop(pinDir)
	}
	fmt.Fprintln(n.stdout, "temper: detached, the kernel's own scheduler runs this node")
	return nil
}

// detach takes the scheduler off and returns when the kernel says that it is.
func (n node) detach(ctx context.Context, e engine, pinDir string) error {
	if err := e.Detach(); err != nil {
		return fmt.Errorf("detach scheduler: %w", err)
	}
	if err := n.awaitStock(ctx, pinDir); err != nil {
		return err
	}
	if err := os.Remove(recordPath(n.runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.WarnContext(ctx, "record of the plan not removed", "err", err)
	}
	return nil
}

// clearRemains removes what an attach that was killed left, which may hold a
// scheduler attached. Who holds the node may be attaching at this moment.
func (n node) clearRemains(ctx context.Context, pinDir string) error {
	holder, err := agent.Holder(n.runDir)
	if err != nil || holder != nil {
		return err
	}
	found, err := n.clear(pinDir)
	if err != nil {
		return fmt.Errorf("clear pins: %w", err)
	}
	if found {
		_ = n.awaitStock(ctx, pinDir) // what runs after that has its pins elsewhere
	}
	return nil
}

func (n node) nothingToStop(pinDir string) error {
	state, err := n.readState(pinDir)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if sched.IsOurs(state.Ops) && !state.Attached {
		return &failure{
			code: exitForeign,
			err:  fmt.Errorf("stop scheduler: %s runs this node and is not pinned in %s", state.Ops, pinDir),
			fix:  "the same with the --pin-dir that it was started with",
		}
	}
	if state.Ops != "" && !state.Attached {
		return &failure{
			code: exitForeign,
			err:  fmt.Errorf("stop scheduler: %s runs this node, which is not ours to stop", state.Ops),
			fix:  "stop it with the tool that started it",
		}
	}
	fmt.Fprintln(n.stdout, "temper: not attached, the kernel's own scheduler runs this node")
	return nil
}

// awaitStock returns when the kernel says that Temper is gone.
func (n node) awaitStock(ctx context.Context, pinDir string) error {
	ctx, cancel := context.WithTimeout(ctx, detachWithin)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		state, err := n.readState(pinDir)
		if err != nil {
			return fmt.Errorf("read state: %w", err)
		}
		if !state.Attached && !sched.IsOurs(state.Ops) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("detach scheduler: the kernel still says %q: %w", state.Kernel, ctx.Err())
		case <-ticker.C:
		}
	}
}
