// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

const shortestInterval = 100 * time.Millisecond

func newTop(n node) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who runs, who waits and what is lent, live",
		Long: `Show who runs, who waits and what is lent, live.

Rates, shares and wakeup delays are of the last interval; the worst waits are
since the attach. Of a CPU limit, the longest wait and the longest stop are since
it came; KERNEL is what the kernel counts beside CPUS.

Ctrl-C ends it. Without a terminal, or with -o json, readings follow each other;
--once prints one and ends.`,
		Example: "  temper top --once -o json | jq '.tiers[0]'\n  temper top --once -o json | jq '.limits[] | select(.paced_share > 0)'",
		Args:    cobra.NoArgs,
	}
	format := outputFlag(cmd)
	once := cmd.Flags().Bool("once", false, "print one interval and end")
	interval := cmd.Flags().Duration("interval", time.Second, "time between readings")
	cmd.RunE = action(func(cmd *cobra.Command) error {
		if *interval < shortestInterval {
			return &failure{code: exitUsage, err: fmt.Errorf("--interval %s is below %s", *interval, shortestInterval)}
		}
		e, err := n.openAttached(pinDir(cmd))
		if err != nil {
			return err
		}
		defer e.Close()
		t := top{node: n, engine: e, interval: *interval, once: *once}
		return t.run(cmd.Context(), t.screen(*format))
	})
	return cmd
}

// top reads the counters once per interval and shows the difference.
type top struct {
	node     node
	engine   engine
	interval time.Duration
	once     bool
	paths    map[uint64]string // cgroups by id, as of the last unknown one
}

// screen is where views go, one after the other.
type screen interface {
	show(view) error
	close() error
}

func (t *top) screen(format output) screen {
	switch file, isFile := t.node.stdout.(*os.File); {
	case format == outputJSON && t.once:
		return indented{t.node.stdout}
	case format == outputJSON:
		return jsonLines{json.NewEncoder(t.node.stdout)}
	case isFile && !t.once && isTerminal(file):
		return &terminal{file: file}
	}
	return plain{t.node.stdout}
}

func (t *top) run(ctx context.Context, to screen) (err error) {
	defer func() { err = errors.Join(err, to.close()) }()
	before, err := t.read()
	if err != nil {
		return err
	}
	ticker := time.NewTicker(t.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		after, err := t.read()
		if err != nil {
			return err
		}
		v, err := t.view(before, after)
		if err != nil {
			return err
		}
		if err := to.show(v); err != nil {
			return fmt.Errorf("show counters: %w", err)
		}
		if t.once {
			return nil
		}
		before = after
	}
}

// reading is everything that is counted, at one moment.
type reading struct {
	stats   sched.Stats
	limits  []sched.LimitStats
	notHeld uint64
}

func (t *top) read() (r reading, err error) {
	if r.stats, err = t.engine.Stats(); err != nil {
		return r, fmt.Errorf("read counters: %w", err)
	}
	if r.limits, err = t.engine.Limits(); err != nil {
		return r, fmt.Errorf("read counters: %w", err)
	}
	if r.notHeld, err = t.engine.LimitsNotHeld(); err != nil {
		return r, fmt.Errorf("read counters: %w", err)
	}
	var ids []uint64
	for _, l := range r.limits {
		ids = append(ids, l.ID)
	}
	if err := t.learn(ids); err != nil {
		return r, err
	}
	return r, t.node.describeLimits(r.limits, t.paths)
}

// view adds to the counters what they do not tell: names, and the plan.
func (t *top) view(before, after reading) (view, error) {
	state, err := t.engine.State()
	if err != nil {
		return view{}, fmt.Errorf("read state: %w", err)
	}
	if !state.Attached {
		return view{}, errNotAttached
	}
	plan, err := t.engine.Plan()
	if err != nil {
		return view{}, fmt.Errorf("read plan in force: %w", err)
	}
	v := compare(before.stats, after.stats)
	v.limits(before, after)
	v.Generation, v.Lend = state.Generation, plan.Lend.String()
	if err := t.name(&v, plan); err != nil {
		return view{}, err
	}
	return v, nil
}

func (t *top) name(v *view, plan policy.Plan) error {
	var ids []uint64
	for _, g := range v.Groups {
		ids = append(ids, g.ID)
	}
	for _, g := range plan.Groups {
		ids = append(ids, g.ID)
	}
	if err := t.learn(ids); err != nil {
		return err
	}
	for i := range v.Groups {
		v.Groups[i].Cgroup = t.paths[v.Groups[i].ID]
	}
	fenced := map[int]string{}
	for _, g := range plan.Groups {
		for _, cpu := range g.Fence {
			fenced[cpu] = t.paths[g.ID]
		}
	}
	for i := range v.CPUs {
		v.CPUs[i].Fence = fenced[v.CPUs[i].CPU]
	}
	return nil
}

// learn walks the cgroup tree only when it meets an unknown id: nodes have
// thousands of cgroups. An id that stays unknown is remembered as gone.
func (t *top) learn(ids []uint64) error {
	unknown := slices.DeleteFunc(ids, func(id uint64) bool {
		_, known := t.paths[id]
		return known
	})
	if len(unknown) == 0 {
		return nil
	}
	tree, err := t.node.tree()
	if err != nil {
		return err
	}
	if t.paths, err = tree.Paths(); err != nil {
		return err
	}
	for _, id := range unknown {
		if _, found := t.paths[id]; !found {
			t.paths[id] = ""
		}
	}
	return nil
}

type indented struct{ w io.Writer }

func (s indented) show(v view) error { return writeJSON(s.w, v) }
func (s indented) close() error      { return nil }

type jsonLines struct{ enc *json.Encoder }

func (s jsonLines) show(v view) error { return s.enc.Encode(v) }
func (s jsonLines) close() error      { return nil }

// plain is for files and pipes: readings below each other.
type plain struct{ w io.Writer }

const plainWidth = 132

func (s plain) show(v view) error {
	_, err := fmt.Fprintf(s.w, "%s\n\n", strings.Join(v.text(plainWidth), "\n"))
	return err
}
func (s plain) close() error { return nil }

// terminal redraws in place, on the alternate screen: what was there before
// comes back at the end.
type terminal struct {
	file *os.File
	open bool
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (s *terminal) show(v view) error {
	width, height := 80, 24
	if size, err := unix.IoctlGetWinsize(int(s.file.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		width, height = int(size.Col), int(size.Row)
	}
	lines := v.text(width)
	if len(lines) > height-1 {
		lines = append(lines[:height-2], fmt.Sprintf("… %d more lines, a taller window shows them", len(lines)-height+2))
	}
	var b strings.Builder
	if !s.open {
		b.WriteString(enterScreen)
		s.open = true
	}
	b.WriteString(toTop)
	for _, line := range lines {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(s.file, b.String())
	return err
}

func (s *terminal) close() error {
	if !s.open {
		return nil
	}
	_, err := io.WriteString(s.file, leaveScreen)
	return err
}
