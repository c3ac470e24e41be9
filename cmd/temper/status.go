// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/cmd/temper/view"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/topology"
)

// status is what runs on this node, as -o json prints it.
type status struct {
	sched.State
	// Scheduler is "temper", "stock", or the name of another sched_ext scheduler.
	Scheduler string `json:"scheduler"`
	// Plan is the plan in force, with paths where they are known.
	Plan     *policy.Plan `json:"plan,omitempty"`
	PlanFile string       `json:"plan_file,omitempty"`
	// Limits are the CPU limits that are held, LimitsNotHeld counts those that
	// found no slot since the attach.
	Limits        []limitStatus `json:"limits,omitempty"`
	LimitsNotHeld uint64        `json:"limits_not_held,omitempty"`
}

func newStatus(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say which scheduler runs this node, why, and with which plan",
		Long: `Say which scheduler runs this node, why, and with which plan.

The exit code tells: 0 Temper, 4 the kernel's own scheduler, 5 another one.

CPU limits that are held follow, each with what it did since it came, and what the
kernel counts for its cgroup (KERNEL) since that was made.`,
		Example: "  temper status -o json | jq .plan\n  temper status -o json | jq '.limits[] | select(.waiting > 0)'",
		Args:    cobra.NoArgs,
	}
	format := outputFlag(cmd)
	cmd.RunE = action(func(cmd *cobra.Command) error {
		s, err := n.status(pinDir(cmd))
		if err != nil {
			return err
		}
		if *format == outputJSON {
			err = writeJSON(n.stdout, s)
		} else {
			err = s.write(n.stdout)
		}
		if err != nil {
			return err
		}
		if code := s.code(); code != exitOK {
			return &failure{code: code} // the output has said it
		}
		return nil
	})
	return cmd
}

func (n node) status(pinDir string) (status, error) {
	state, err := n.readState(pinDir)
	if err != nil {
		return status{}, fmt.Errorf("read state: %w", err)
	}
	s := status{State: state, Scheduler: "stock"}
	if !state.Attached {
		if state.Ops != "" {
			s.Scheduler = state.Ops
		}
		return s, nil
	}
	s.Scheduler = sched.Name
	e, err := n.openAttached(pinDir)
	if err != nil {
		return status{}, err
	}
	defer e.Close()
	plan, file, err := n.inForce(e)
	if err != nil {
		return status{}, err
	}
	s.Plan, s.PlanFile = &plan, file
	s.Limits, s.LimitsNotHeld, err = n.limitStatuses(e)
	return s, err
}

func (s status) code() int {
	switch {
	case s.Attached:
		return exitOK
	case s.Ops != "":
		return exitForeign
	}
	return exitNotAttached
}

func (s status) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	switch s.code() {
	case exitOK:
		fmt.Fprintf(w, "scheduler\t%s\n", sched.Name)
	case exitForeign:
		what := "another sched_ext scheduler"
		if sched.IsOurs(s.Ops) {
			what = "not pinned where --pin-dir says"
		}
		fmt.Fprintf(w, "scheduler\t%s, %s\n", s.Ops, what)
	default:
		fmt.Fprint(w, "scheduler\tstock, Temper is not attached\n")
	}
	if s.Attached {
		fmt.Fprintf(w, "heartbeat\t%s ago, dead-man after %s\n", view.Short(s.HeartbeatAge), s.DeadMan)
	}
	if s.Exit != nil {
		fmt.Fprintf(w, "last exit\t%s: %s\n", s.Exit.Reason, s.Exit.Message)
	}
	if s.Plan != nil {
		file := ""
		if s.PlanFile != "" {
			file = ", " + s.PlanFile
		}
		fmt.Fprintf(w, "plan\t%d, lend %s%s\n", s.Generation, s.Plan.Lend, file)
		fmt.Fprint(w, "\nTIER\tFENCE\tCGROUP\n")
		for _, g := range s.Plan.Groups {
			fmt.Fprintf(w, "%s\t%s\t%s\n", g.Tier, fenceText(g), groupText(g))
		}
	}
	if lines := s.limitLines(); len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
	return w.Flush()
}

func fenceText(g policy.Group) string {
	if len(g.Fence) == 0 {
		return "-"
	}
	return topology.FormatList(g.Fence)
}

func groupText(g policy.Group) string {
	text := g.Cgroup
	if text == "" {
		text = fmt.Sprintf("(gone, id %d)", g.ID)
	}
	if g.EachChild {
		text += "/*"
	}
	if g.NotFenced != "" {
		text += "  (not fenced: " + g.NotFenced + ")"
	}
	return text
}
