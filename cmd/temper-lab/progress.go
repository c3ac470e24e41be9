// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench/report"
	"github.com/temper-sched/temper/internal/bench/run"
)

// progress shows campaigns as they go: a line for each run that ends, with how
// long the rest will take, and on a terminal one more that counts windows.
type progress struct {
	out   io.Writer
	tty   bool
	begin time.Time
	now   func() time.Time
	todo  run.Todo

	runs, windows, void, failed int
	live                        bool // the last line is the counting one
}

func newProgress(out io.Writer, todo run.Todo) *progress {
	return &progress{out: out, tty: terminal(out), begin: time.Now(), now: time.Now, todo: todo}
}

// terminal tells whether somebody watches out.
func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (p *progress) update(u run.Update) {
	switch {
	case u.Record != nil:
		p.windows++
		p.count(fmt.Sprintf("%s seed %d, step %d", u.Arm, u.Seed, u.Record.Window.Step.Index))
	case u.Ended != nil:
		p.ended(u)
	case u.Arm == "":
		p.line("%s", u.Text)
	default:
		p.count(fmt.Sprintf("%s seed %d: %s", u.Arm, u.Seed, u.Text))
	}
}

func (p *progress) ended(u run.Update) {
	p.runs++
	p.void += u.Ended.Void
	what := fmt.Sprintf("%d windows", u.Ended.Windows)
	if u.Ended.Void > 0 {
		what += fmt.Sprintf(", %d void", u.Ended.Void)
	}
	if u.Ended.Err != nil {
		p.failed++
		what += ", FAILED: " + strings.ReplaceAll(u.Ended.Err.Error(), "\n", "\n    ")
	}
	p.line("[%*d/%d] %-18s seed %-3d %s in %s; %s", digits(p.todo.Runs), p.runs, p.todo.Runs, u.Arm, u.Seed, what,
		u.Ended.Took.Round(time.Second), p.left())
}

// left estimates the rest from the windows so far.
func (p *progress) left() string {
	left := p.todo.Windows - p.windows
	if left <= 0 {
		return "none left"
	}
	if p.windows == 0 {
		return fmt.Sprintf("%d windows left", left)
	}
	each := p.now().Sub(p.begin) / time.Duration(p.windows)
	return fmt.Sprintf("about %s left", short(each*time.Duration(left)))
}

// short shows a duration as people say it.
func short(d time.Duration) string {
	switch {
	case d < 100*time.Second:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case d < 100*time.Minute:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

func digits(n int) int { return len(strconv.Itoa(n)) }

// line writes a line that stays.
func (p *progress) line(format string, args ...any) {
	if p.live {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.live = false
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// count shows on a terminal how far it got.
func (p *progress) count(what string) {
	if !p.tty {
		return
	}
	fmt.Fprintf(p.out, "\r\x1b[K%d of %d windows, %s; %.60s", p.windows, p.todo.Windows, p.left(), what)
	p.live = true
}

// demoProgress shows every window: figures on out, all else on err.
type demoProgress struct {
	out, err io.Writer
	begin    time.Time
	lines    int
}

func (p *demoProgress) update(u run.Update) {
	switch {
	case u.Record != nil:
		if p.lines == 0 {
			fmt.Fprintln(p.out, report.Columns)
		}
		p.lines++
		fmt.Fprintln(p.out, report.Line(u.Record))
	case u.Text != "":
		fmt.Fprintf(p.err, "%5.0fs  %s: %s\n", time.Since(p.begin).Seconds(), u.Arm, u.Text)
	}
}
