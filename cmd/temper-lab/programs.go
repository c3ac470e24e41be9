// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/run"
)

// programs are the flags for what runs on the node.
type programs struct {
	temper, node, agent, commit, execConfig string
	execArgs                                []string
}

func (p *programs) flags(f *pflag.FlagSet) {
	f.StringVar(&p.temper, "temper", "", "static temper `binary` for the temper arms (default: beside this program)")
	f.StringVar(&p.node, "node", "", "static temper-lab-node `binary`, which drives the node (default: beside this program)")
	f.StringVar(&p.agent, "agent", "", "static temper-agent `binary`, for scenarios about the agent (default: beside this program)")
	f.StringVar(&p.commit, "commit", "", "commit to name in the records (default: the one that this program was built of)")
}

func (p *programs) execFlags(f *pflag.FlagSet) {
	f.StringVar(&p.execConfig, "exec-config", "", "configuration `file` of the exec: arm's scheduler; {config} in --exec-args is where it lies")
	f.StringArrayVar(&p.execArgs, "exec-args", nil, "one `argument` for the exec: arm's scheduler; repeat it for more")
}

// find checks the programs that scenarios under arms need and completes exec arms.
func (p *programs) find(arms []bench.Arm, of ...bench.Scenario) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	beside := func(path *string, name string) error {
		if *path == "" {
			*path = filepath.Join(filepath.Dir(self), name)
		}
		return static(*path)
	}
	if slices.ContainsFunc(arms, func(a bench.Arm) bool { return a.Ops == "temper" }) {
		if err := beside(&p.temper, "temper"); err != nil {
			return err
		}
	}
	if err := beside(&p.node, "temper-lab-node"); err != nil {
		return err
	}
	if slices.ContainsFunc(of, func(s bench.Scenario) bool { return s.KindOf().Agent }) {
		if err := beside(&p.agent, "temper-agent"); err != nil {
			return err
		}
	}
	brought := false
	for i := range arms {
		if e := arms[i].Exec; e != nil {
			brought = true
			e.Args, e.Config = p.execArgs, p.execConfig
			if err := run.Describe(e); err != nil {
				return err
			}
		}
	}
	if !brought && (p.execConfig != "" || len(p.execArgs) > 0) {
		return usageError{errors.New("--exec-config and --exec-args are for an exec:PATH arm, and none is given")}
	}
	if p.commit == "" {
		p.commit = sourceCommit()
	}
	return nil
}

// static refuses a program that needs shared libraries: the guest has none of
// this host's.
func static(path string) error {
	f, err := elf.Open(path)
	if _, ok := errors.AsType[*fs.PathError](err); err != nil && !ok { // it was read
		err = fmt.Errorf("%s is no program (ELF file)", path)
	}
	if err != nil {
		return fmt.Errorf("open program for the node: %w; build it with make build", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs shared libraries and cannot run in a guest: build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// builtOf is the commit that make build was run at, with a + as below: when records are
// made, the checkout may have gone on, or be another one.
var builtOf string

// sourceCommit is the commit that the programs were built of. Where nothing was stamped, as
// by go run, it is the checkout's, with a + when files that programs are made of were changed
// or added: neither records nor documents are. The Makefile has the same rule.
func sourceCommit() string {
	if builtOf != "" {
		return builtOf
	}
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(head))
	if changed, err := exec.Command("git", "status", "--porcelain", "--", ":/", ":(top,exclude)bench/records", ":(top,exclude,glob)**/*.md").Output(); err != nil || len(changed) > 0 {
		commit += "+"
	}
	return commit
}
