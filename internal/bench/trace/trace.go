// SPDX-License-Identifier: Apache-2.0

// Package trace shows what the kernel of a guest in virtual time did: who woke
// whom, and what ran on each CPU until the woken thread did.
//
// The emulator notes calls of a few of the kernel's functions (clock/plugin/trace.c).
// The guest executes the same instructions as without, so that a run on record, done
// again, shows why one of its threads waited.
package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Thread is a task of the guest at some moment. The idle thread of every CPU has the
// pid 0.
type Thread struct {
	PID   int
	State uint32 // the kernel's; 0: it runs, or would
	Name  string
}

// Event is a call of a function of the guest's kernel.
type Event struct {
	At      time.Duration // the CPU's time when its slice began
	CPU     int
	Name    string
	Threads []Thread // the first arguments
}

// Wait is for how long a thread that could run did not.
type Wait struct {
	Thread      Thread
	From, Until time.Duration
	FromCPU     int // of the waker, or where it was preempted
	CPU         int // where it ran then
	Woken       bool
}

// For is how long it took.
func (w Wait) For() time.Duration { return w.Until - w.From }

// Read reads a trace, in the order of time.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		e, err := parse(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("read trace: line %d: %w", n, err)
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events, nil
}

var errLine = errors.New("want NS VCPU NAME [\\t PID STATE COMM]")

func parse(line string) (Event, error) {
	call, rest, _ := strings.Cut(line, "\t")
	words := strings.Split(call, " ")
	if len(words) != 3 {
		return Event{}, fmt.Errorf("%q: %w", line, errLine)
	}
	at, err := strconv.ParseInt(words[0], 10, 64)
	cpu, err2 := strconv.Atoi(words[1])
	if errors.Join(err, err2) != nil || at < 0 {
		return Event{}, fmt.Errorf("%q: %w", line, errLine)
	}
	e := Event{At: time.Duration(at), CPU: cpu, Name: words[2]}
	for rest != "" {
		var task string
		task, rest, _ = strings.Cut(rest, "\t")
		t, err := parseThread(task)
		if err != nil {
			return Event{}, fmt.Errorf("%q: %w", line, err)
		}
		e.Threads = append(e.Threads, t)
	}
	return e, nil
}

func parseThread(text string) (Thread, error) {
	words := strings.SplitN(text, " ", 3)
	if len(words) != 3 {
		return Thread{}, errLine
	}
	pid, err := strconv.Atoi(words[0])
	state, err2 := strconv.ParseUint(words[1], 10, 32)
	if errors.Join(err, err2) != nil {
		return Thread{}, errLine
	}
	return Thread{PID: pid, State: uint32(state), Name: words[2]}, nil
}

// Waits finds every wait that ended by running, in the order of their ends.
func Waits(events []Event) []Wait {
	var waits []Wait
	waiting := map[int]Wait{} // by pid
	running := map[int]int{}  // by CPU
	for _, e := range events {
		switch {
		case e.Name == functionWake && len(e.Threads) == 1:
			t := e.Threads[0]
			_, already := waiting[t.PID]
			// Woken before it slept: it goes on, or the switch says that it waits.
			if already || slices.Contains(slices.Collect(maps.Values(running)), t.PID) {
				continue
			}
			waiting[t.PID] = Wait{Thread: t, From: e.At, FromCPU: e.CPU, Woken: true}
		case e.Name == functionSwitch && len(e.Threads) == 2:
			prev, next := e.Threads[0], e.Threads[1]
			running[e.CPU] = next.PID
			if w, ok := waiting[next.PID]; ok {
				w.Thread, w.Until, w.CPU = next, e.At, e.CPU
				waits = append(waits, w)
				delete(waiting, next.PID)
			}
			if prev.PID != 0 && prev.State == 0 {
				waiting[prev.PID] = Wait{Thread: prev, From: e.At, FromCPU: e.CPU}
			}
		}
	}
	return waits
}

// Longest returns the n longest waits of the threads of a name, or of all.
func Longest(waits []Wait, name string, n int) []Wait {
	of := slices.DeleteFunc(slices.Clone(waits), func(w Wait) bool { return name != "" && w.Thread.Name != name })
	slices.SortStableFunc(of, func(a, b Wait) int { return cmp.Compare(b.For(), a.For()) })
	return of[:min(n, len(of))]
}

// ByName is the longest wait of each thread name, the longest first.
func ByName(waits []Wait) []Wait {
	longest := map[string]Wait{}
	for _, w := range waits {
		if old, ok := longest[w.Thread.Name]; !ok || w.For() > old.For() {
			longest[w.Thread.Name] = w
		}
	}
	return Longest(slices.Collect(maps.Values(longest)), "", len(longest))
}

// around is what a wait's events are shown with, before and after.
const around = 20 * time.Microsecond

// Show writes a wait and what happened meanwhile, times since its begin.
func Show(out io.Writer, w Wait, events []Event) {
	how := "preempted"
	if w.Woken {
		how = "woken"
	}
	fmt.Fprintf(out, "%s (pid %d) waited %s, %s on CPU %d at %s, ran on CPU %d\n",
		w.Thread.Name, w.Thread.PID, w.For(), how, w.FromCPU, w.From, w.CPU)
	for _, e := range events {
		if e.At < w.From-around || e.At > w.Until+around {
			continue
		}
		fmt.Fprintf(out, "  %+10.1f us  CPU %-2d %s%s\n", float64(e.At-w.From)/1000, e.CPU, e.Name, describe(e.Threads))
	}
}

func describe(threads []Thread) string {
	var names []string
	for _, t := range threads {
		names = append(names, fmt.Sprintf("%s/%d", t.Name, t.PID))
	}
	if len(names) == 0 {
		return ""
	}
	return "  " + strings.Join(names, " -> ")
}
