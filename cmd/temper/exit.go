// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/temper-sched/temper/internal/sched"
)

// The exit codes, in one place for the code, the help topic and the tests.
const (
	exitOK = iota
	exitError
	exitUsage
	exitPlan
	exitNotAttached
	exitForeign
	exitUnfit
	exitEjected
	exitBusy
)

var exitMeanings = []string{
	exitOK:          "done; for status: Temper schedules this node",
	exitError:       "something failed; the message says what",
	exitUsage:       "the command line was not understood",
	exitPlan:        "the plan was refused; the plan in force, if any, stays",
	exitNotAttached: "Temper is not attached: the kernel's own scheduler runs this node",
	exitForeign:     "another sched_ext scheduler runs this node; Temper never replaces it",
	exitUnfit:       "this node cannot run Temper; doctor says why and what to do",
	exitEjected:     "the scheduler was ejected while run watched it; the kernel's own took over",
	exitBusy:        "another temper run, or the node agent, holds this node",
}

func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Every subcommand exits with one of these codes:\n\n")
	for code, meaning := range exitMeanings {
		fmt.Fprintf(&b, "  %d  %s\n", code, meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

// failure is an error with its exit code and the way out.
type failure struct {
	code int
	err  error  // nil if the output has said it
	fix  string // what to try, empty if the error says it
}

func (f *failure) Error() string {
	if f.err == nil {
		return exitMeanings[f.code]
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// refusal is why the engine cannot run here, from the closed list of reasons.
type refusal struct {
	reason sched.Reason
	fix    string
	err    error
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.reason, r.err) }

func (r *refusal) Unwrap() error { return r.err }

// asFailure gives err its exit code.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return &failure{code: codeOf(r.reason), err: err, fix: r.fix}
	}
	if errors.Is(err, errNotAttached) {
		return &failure{code: exitNotAttached, err: err, fix: "temper run -f plan.yaml"}
	}
	if errors.Is(err, sched.ErrNotMeasured) {
		return &failure{code: exitError, err: err, fix: "temper run -f plan.yaml: it measures while it runs"}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &failure{code: exitError, err: err, fix: "the same as root"}
	}
	return &failure{code: exitError, err: err}
}

func codeOf(r sched.Reason) int {
	switch r {
	case sched.ForeignScheduler:
		return exitForeign
	case sched.AttachFailed:
		return exitError
	case sched.LimitsNotHeld:
		return exitPlan
	case sched.EjectedStall, sched.EjectedError, sched.EjectedSysRq, sched.AgentStale:
		return exitEjected
	}
	return exitUnfit
}

// report writes f for people: what failed, and what to try.
func (f *failure) report(w io.Writer) {
	fmt.Fprintf(w, "temper: %s\n", f.err)
	if f.fix != "" {
		fmt.Fprintf(w, "try: %s\n", f.fix)
	}
}
