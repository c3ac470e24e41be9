// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/agent"
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

Safe mode lasts until it is switched off, or the node reboots. Switching it on and off also
ends the latch that five ejects within an hour leave.`,
		Example:   "  temper safe-mode on\n  temper safe-mode off",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"on", "off"},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return action(func(*cobra.Command) error { return n.setSafeMode(args[0] == "on") })(cmd, args)
	}
	return cmd
}

func (n node) setSafeMode(on bool) error {
	file := agent.SafeModeFile(n.runDir)
	if !on {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("end safe mode: %w", err)
		}
		fmt.Fprintln(n.stdout, "temper: safe mode is off")
		return nil
	}
	if err := os.MkdirAll(n.runDir, 0o755); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return fmt.Errorf("begin safe mode: %w", err)
	}
	fmt.Fprintln(n.stdout, "temper: safe mode is on")
	return nil
}
