// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/work"
)

// database is a primary whose server is real and is driven by its own client
// program, on the instrument's CPU. The client notes every transaction; what is
// made of the notes is made here.
type database struct {
	node *node
	sw   databaseSoftware
}

// databaseSoftware is one kind of database.
type databaseSoftware interface {
	// start brings up the server in the critical pod, with its data in a
	// directory below dir, and returns when it answers.
	start(ctx context.Context, n *node, dir string) error
	// client is the command that drives it for so many seconds and leaves its
	// notes in dir.
	client(ctx context.Context, c clientSpec) *exec.Cmd
	// transactions reads the notes.
	transactions(dir string) ([]transaction, error)
}

// clientSpec is what a client has to do.
type clientSpec struct {
	dir     string
	clients int
	rate    float64 // 0: each connection begins its next transaction at once
	seconds int
	seed    uint64
	params  map[string]float64
}

// transaction is one that ended.
type transaction struct {
	due, end time.Duration // CLOCK_REALTIME
	lag      time.Duration // of a rate: how late it began
	client   int
}

// connectLead is the time that connections have before the warm-up begins.
const connectLead = 500 * time.Millisecond

// unprivileged is who databases run as: they refuse to be root.
const unprivileged = 65534

func (d *database) start(ctx context.Context) error {
	switch kind := d.node.spec.Scenario.Primary.Kind; kind {
	case "postgresql":
		d.sw = &postgresql{}
	case "mariadb":
		d.sw = &mariadb{}
	default:
		return fmt.Errorf("start database: no software of kind %q", kind)
	}
	dir, err := os.MkdirTemp("", "database-")
	if err == nil {
		d.node.atEnd = append(d.node.atEnd, func() { _ = os.RemoveAll(dir) })
		err = os.Chown(dir, unprivileged, unprivileged)
	}
	if err != nil {
		return fmt.Errorf("create database directory: %w", err)
	}
	return d.sw.start(ctx, d.node, dir)
}

// asNobody makes a command run without privileges.
func asNobody(cmd *exec.Cmd, dir string) *exec.Cmd {
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	return cmd
}

// setUp runs a command that gets a database ready, outside of any pod: its
// limit is not to slow that down.
func (n *node) setUp(cmd *exec.Cmd) error {
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := n.tree.start(cmd, client); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		text := strings.TrimSpace(said.String())
		return fmt.Errorf("set up database by %s: %w; it said: %s", filepath.Base(cmd.Path), err, text[max(0, len(text)-1000):])
	}
	return nil
}

// readyBound is how long a database may take to answer.
const readyBound = time.Minute

// startDatabase starts the server in the critical pod and waits until it says
// word on its standard error.
func (n *node) startDatabase(ctx context.Context, cmd *exec.Cmd, word string) error {
	name := filepath.Base(cmd.Path)
	out, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if err := n.tree.start(cmd, critical+ctr); err != nil {
		return err
	}
	n.started = append(n.started, cmd)
	bound, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	defer context.AfterFunc(bound, func() { _ = cmd.Process.Kill() })()
	said, err := readUntil(out, word)
	if err != nil {
		return fmt.Errorf("start %s: it ended or took %v without answering: %w; it said: %s", name, readyBound, err, said)
	}
	return nil
}

// databaseRun is a step in progress.
type databaseRun struct {
	node     *node
	sw       databaseSoftware
	spec     clientSpec
	cmd      *exec.Cmd
	from, to time.Duration
	offset   time.Duration // of CLOCK_REALTIME
	samples  []usageSample
	waited   [2]time.Duration // of the client, at the window's ends
}

// usageSample is what the limited cgroups had used at a moment.
type usageSample struct {
	at    time.Duration
	usage []time.Duration
}

// begin starts the client and fixes the window.
func (d *database) begin(ctx context.Context, step bench.Step) (window, error) {
	n := d.node
	l := n.spec.Scenario.Load
	dir, err := os.MkdirTemp("", "client-")
	if err != nil {
		return nil, fmt.Errorf("create client's directory: %w", err)
	}
	lasts := l.Total() + 2*connectLead
	r := &databaseRun{
		node: n, sw: d.sw, spec: clientSpec{
			dir: dir, clients: n.spec.Scenario.Clients(step), rate: step.Rate, seconds: int((lasts + time.Second - 1) / time.Second),
			seed:   n.spec.seedAt(step),
			params: n.spec.Scenario.Primary.Params,
		},
	}
	r.cmd = d.sw.client(ctx, r.spec)
	if err := n.tree.start(r.cmd, client); err != nil {
		return nil, err
	}
	now := monotonic()
	r.offset = clock(unix.CLOCK_REALTIME) - now
	r.from = now + connectLead + l.Warmup + l.Pad
	r.to = r.from + l.Window
	return r, nil
}

func (r *databaseRun) span() (from, to time.Duration) { return r.from, r.to }

// moments samples use and the client's waits within the window.
func (r *databaseRun) moments() []moment {
	var out []moment
	// First: what else is due at the same moments takes longer.
	for at := r.from; at <= r.to && len(r.node.counters.limited) > 0; at += bench.ShortSpan {
		out = append(out, moment{at, r.sample})
	}
	for i, at := range []time.Duration{r.from, r.to} {
		out = append(out, moment{at, func() (err error) {
			r.waited[i], err = runDelay(r.cmd.Process.Pid)
			return err
		}})
	}
	return out
}

func (r *databaseRun) sample() error {
	s := usageSample{at: monotonic()}
	for _, l := range r.node.counters.limited {
		usage, err := r.node.tree.usage(l.path)
		if err != nil {
			return err
		}
		s.usage = append(s.usage, usage)
	}
	r.samples = append(r.samples, s)
	return nil
}

// runDelay is how long a process's threads have waited for a CPU.
func runDelay(pid int) (time.Duration, error) {
	var total time.Duration
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(files) == 0 {
		err = errors.New("it has ended")
	}
	if err != nil {
		return 0, fmt.Errorf("read run delay of client: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, fmt.Errorf("read run delay of client: %w", err)
		}
		f := strings.Fields(string(text))
		if len(f) < 2 {
			return 0, fmt.Errorf("read run delay of client: %q has no second field", text)
		}
		ns, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read run delay of client: %w", err)
		}
		total += time.Duration(ns)
	}
	return total, nil
}

// limits says what was used of each limit, by the samples.
func (r *databaseRun) limits(into []bench.Limit) error {
	for i := range into {
		l := &into[i]
		if l.Before.Quota == 0 {
			continue
		}
		if len(r.samples) < 2 {
			return fmt.Errorf("sample use of %s: %d samples in the window", l.Name, len(r.samples))
		}
		l.By = bench.UseBySamples
		l.Uses = sampledUses(r.samples, i, work.Stretches(l.Before, l.Changes, r.to-r.from), r.from)
	}
	return nil
}

// sampledUses holds samples against the quotas that were in force between them.
func sampledUses(samples []usageSample, group int, stretches []work.Stretch, from time.Duration) []bench.Use {
	var out []bench.Use
	for _, span := range []time.Duration{bench.ShortSpan, bench.LongSpan} {
		u, n := work.NewUse(span), int(span/bench.ShortSpan)
		for i := 0; i+n < len(samples); i++ {
			a, b := samples[i], samples[i+n]
			for _, s := range stretches {
				if a.at-from >= s.From && b.at-from <= s.To+time.Millisecond {
					u.Add(float64(b.usage[group]-a.usage[group]), float64(b.at-a.at)*s.Quota.CPUs())
				}
			}
		}
		if u.Spans > 0 {
			out = append(out, u.Use)
		}
	}
	return out
}

// end waits for the client and returns what it saw.
func (r *databaseRun) end() (bench.Result, []bench.SchedSample, error) {
	if err := r.cmd.Wait(); err != nil {
		return bench.Result{}, nil, fmt.Errorf("end client: %w", err)
	}
	all, err := r.sw.transactions(r.spec.dir)
	if err == nil {
		err = os.RemoveAll(r.spec.dir)
	}
	if err != nil {
		return bench.Result{}, nil, fmt.Errorf("read client's notes: %w", err)
	}
	for i := range all {
		all[i].due -= r.offset + r.from
		all[i].end -= r.offset + r.from
	}
	result := transacted(all, r.to-r.from, r.spec.rate > 0)
	result.RunDelay = r.waited[1] - r.waited[0]
	return result, nil, nil
}

// partLag is how late transactions of a rate began: the client has so many
// connections only, and where all are in use, the next one waits. It is part of
// the latency.
const partLag = "schedule lag"

// transacted makes a result of transactions whose moments are since the
// window's start: those that were due in it, whenever they ended.
func transacted(all []transaction, window time.Duration, open bool) bench.Result {
	r := bench.Result{Values: map[string]float64{}}
	slices.SortFunc(all, func(a, b transaction) int { return cmp.Compare(a.end, b.end) })
	latency, lag := bench.NewHist(), bench.NewHist()
	ended := 0
	last, silence := time.Duration(0), time.Duration(0)
	for _, t := range all {
		if t.end >= 0 && t.end < window {
			silence, last = max(silence, t.end-last), t.end
			ended++
		}
		if t.due < 0 || t.due >= window {
			continue
		}
		latency.Record(t.end - t.due)
		lag.Record(t.lag)
		r.Slowest = append(r.Slowest, bench.Slow{Due: t.due, Latency: t.end - t.due, Lag: t.lag, Conn: t.client})
	}
	r.Slowest = slowest(r.Slowest)
	r.Values[bench.ValueSilence] = float64(max(silence, window-last))
	r.Achieved = float64(ended) / window.Seconds()
	if r.Requests = int(latency.Count()); r.Requests > 0 {
		r.Latency = latency
	}
	if len(all) > 0 {
		r.Values[bench.ValueFirst], r.Values[bench.ValueLast] = float64(all[0].end), float64(all[len(all)-1].end)
	}
	if open {
		r.Offered = float64(r.Requests) / window.Seconds()
		r.Parts = map[string]*bench.Hist{partLag: lag}
	}
	return r
}

// readTransactions reads what a client noted below dir, a file for each thread.
func readTransactions(dir, what string, parse func(string) ([]transaction, error)) ([]transaction, error) {
	files, err := filepath.Glob(filepath.Join(dir, noteName+".*"))
	if err == nil && len(files) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", what, err)
	}
	var out []transaction
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", what, err)
		}
		all, err := parse(string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, all...)
	}
	return out, nil
}
