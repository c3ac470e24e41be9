// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

func newApply(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply -f plan.yaml",
		Short: "Change the plan of the attached scheduler",
		Long: `Change the plan of the attached scheduler, and say what changes.

A plan is applied whole, without detaching: there is no moment of mixed plans or
of the kernel's own scheduler. A node that the node agent holds has the agent's plan,
and no other is taken there. A plan with an error is refused whole, with the line
and reason of each error, and the plan in force stays.`,
		Example: "  temper apply -f plan.yaml --dry-run",
		Args:    cobra.NoArgs,
	}
	file := fileFlag(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "check the plan and say what it would change, also where nothing is attached")
	cmd.RunE = action(func(cmd *cobra.Command) error {
		plan, err := n.readPlan(*file)
		if err != nil {
			return err
		}
		if err := n.checkLimits(plan, pinDir(cmd)); err != nil {
			return err
		}
		if *dryRun {
			return n.dryRun(pinDir(cmd), plan)
		}
		return n.apply(pinDir(cmd), *file, plan)
	})
	return cmd
}

func (n node) apply(pinDir, file string, plan policy.Plan) error {
	if err := n.notTheAgents(); err != nil {
		return err
	}
	e, err := n.openAttached(pinDir)
	if err != nil {
		return err
	}
	defer e.Close()
	if file, err = filepath.Abs(file); err != nil {
		return fmt.Errorf("resolve plan file: %w", err)
	}
	before, _, err := n.inForce(e)
	if err != nil {
		return err
	}
	state, err := n.put(e, plan, file)
	if err != nil {
		return err
	}
	fmt.Fprintf(n.stdout, "temper: plan %d in force\n", state.Generation)
	n.printOps(policy.Diff(before, plan))
	return nil
}

func (n node) dryRun(pinDir string, plan policy.Plan) error {
	var before policy.Plan
	e, err := n.openAttached(pinDir)
	switch {
	case errors.Is(err, errNotAttached): // everything in the plan is new
	case err != nil:
		return err
	default:
		defer e.Close()
		if before, _, err = n.inForce(e); err != nil {
			return err
		}
	}
	n.printOps(policy.Diff(before, plan))
	return nil
}

func (n node) printOps(ops []policy.Op) {
	if len(ops) == 0 {
		fmt.Fprintln(n.stdout, "no change")
	}
	for _, op := range ops {
		fmt.Fprintln(n.stdout, op)
	}
}

// inForce returns the plan that the kernel holds, with the paths that it does
// not, and the file it came from if that is known.
func (n node) inForce(e engine) (policy.Plan, string, error) {
	plan, err := e.Plan()
	if err != nil {
		return policy.Plan{}, "", fmt.Errorf("read plan in force: %w", err)
	}
	state, err := e.State()
	if err != nil {
		return policy.Plan{}, "", fmt.Errorf("read state: %w", err)
	}
	return n.withPaths(plan, state)
}

// withPaths fills in the paths of plan, from the record if it is of this plan,
// else from the cgroup tree.
func (n node) withPaths(plan policy.Plan, state sched.State) (policy.Plan, string, error) {
	r, found, err := loadRecord(n.runDir, state)
	if err != nil {
		n.log.Warn("record of the plan not used", "err", err)
	}
	if found {
		return r.Plan, r.File, nil
	}
	tree, err := n.tree()
	if err != nil {
		return policy.Plan{}, "", err
	}
	paths, err := tree.Paths()
	if err != nil {
		return policy.Plan{}, "", err
	}
	for i := range plan.Groups {
		plan.Groups[i].Cgroup = paths[plan.Groups[i].ID]
	}
	return plan, "", nil
}
