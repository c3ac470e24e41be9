// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// record remembers of the plan in force what the kernel does not hold: the
// file, the paths, and the fences that did not fit. It is a convenience. Where it
// does not match what the kernel says, the kernel is right.
type record struct {
	EnableSeq  uint64      `json:"enable_seq"`
	Generation uint64      `json:"generation"`
	File       string      `json:"file"`
	Plan       policy.Plan `json:"plan"`
}

// matches is true if the plan in force is the recorded one.
func (r record) matches(s sched.State) bool {
	return s.Attached && r.EnableSeq == s.EnableSeq && r.Generation == s.Generation
}

func recordPath(dir string) string { return filepath.Join(dir, "plan.json") }

// loadRecord returns the record that belongs to state, if there is one.
func loadRecord(dir string, state sched.State) (record, bool, error) {
	var r record
	text, err := os.ReadFile(recordPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read record of the plan: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, false, fmt.Errorf("read record of the plan %s: %w", recordPath(dir), err)
	}
	return r, r.matches(state), nil
}

// save replaces the record at once, so that a reader sees the old or the new.
func (r record) save(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of the plan: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write record of the plan: %w", err)
	}
	temporary := recordPath(dir) + ".new"
	if err := os.WriteFile(temporary, text, 0o644); err != nil {
		return fmt.Errorf("write record of the plan: %w", err)
	}
	if err := os.Rename(temporary, recordPath(dir)); err != nil {
		return fmt.Errorf("write record of the plan: %w", err)
	}
	return nil
}

// readPlan reads and checks a plan file against this node.
func (n node) readPlan(file string) (policy.Plan, error) {
	data, err := readLimited(file)
	if err != nil {
		return policy.Plan{}, &failure{code: exitPlan, err: fmt.Errorf("read plan: %w", err)}
	}
	top, err := n.topology()
	if err != nil {
		return policy.Plan{}, err
	}
	tree, err := n.tree()
	if err != nil {
		return policy.Plan{}, err
	}
	plan, err := config.Parse(file, data, config.Node{Topology: top, Cgroups: tree})
	if err != nil {
		return policy.Plan{}, &failure{code: exitPlan, err: fmt.Errorf("plan refused, nothing changed:\n%w", err)}
	}
	for _, g := range plan.Groups {
		if g.NotFenced != "" {
			fmt.Fprintf(n.stderr, "temper: warning: %s is not fenced: %s\n", g.Cgroup, g.NotFenced)
		}
	}
	return plan, nil
}

// readLimited reads one byte more than a plan may have, so that a file of any
// size is refused by its size.
func readLimited(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, config.MaxSize+1))
}

// put applies plan and records it, one process at a time. A record that cannot
// be written is logged: the plan is in force all the same.
func (n node) put(a applier, plan policy.Plan, file string) (sched.State, error) {
	held, err := agent.HoldPlan(n.runDir)
	if err != nil {
		return sched.State{}, err
	}
	defer held.Release()
	return n.putHeld(a, plan, file)
}

func (n node) putHeld(a applier, plan policy.Plan, file string) (sched.State, error) {
	if err := a.Apply(plan); err != nil {
		return sched.State{}, fmt.Errorf("apply plan: %w", err)
	}
	state, err := a.State()
	if err != nil {
		return sched.State{}, fmt.Errorf("read state: %w", err)
	}
	r := record{EnableSeq: state.EnableSeq, Generation: state.Generation, File: file, Plan: plan}
	if err := r.save(n.runDir); err != nil {
		n.log.Warn("plan not recorded, status shows less", "err", err)
	}
	return state, nil
}
