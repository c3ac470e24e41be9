// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// server is woken on CPU 3 for CPU 0, where a kernel thread comes first, and is
// preempted later on. spin is woken while it runs: that is no wait.
const overtaken = "1000 3 try_to_wake_up\t142 1 server\n" +
	"1500 3 resched_curr\n" +
	"2000 0 __switch_to\t160 0 spin\t9 0 kworker/0:1\n" +
	"2500 1 try_to_wake_up\t160 0 spin\n" +
	"90000 0 __switch_to\t9 1026 kworker/0:1\t142 0 server\n" +
	"95000 0 try_to_wake_up\t142 0 server\n" +
	"96000 0 __switch_to\t142 0 server\t160 0 spin\n" +
	"99000 1 __switch_to\t0 0 swapper/1\t142 0 server\n"

func read(t *testing.T, text string) []Event {
	t.Helper()
	events, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestWaits(t *testing.T) {
	server := Thread{PID: 142, Name: "server"}
	want := []Wait{
		{Thread: server, From: 1000, FromCPU: 3, Until: 90_000, CPU: 0, Woken: true},
		{Thread: Thread{PID: 160, Name: "spin"}, From: 2000, FromCPU: 0, Until: 96_000, CPU: 0},
		{Thread: server, From: 96_000, FromCPU: 0, Until: 99_000, CPU: 1},
	}
	waits := Waits(read(t, overtaken))
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Wait{want[0]}, Longest(waits, "server", 1)); diff != "" {
		t.Errorf("the longest wait of server differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Wait{want[1], want[0]}, ByName(waits)); diff != "" {
		t.Errorf("the longest wait of each name differs (-want +got):\n%s", diff)
	}
	if got := Longest(waits, "nobody", 3); len(got) != 0 {
		t.Errorf("nobody waited %v", got)
	}
}

func TestShow(t *testing.T) {
	events := read(t, overtaken)
	var out bytes.Buffer
	Show(&out, Waits(events)[2], events)
	const want = "server (pid 142) waited 3µs, preempted on CPU 0 at 96µs, ran on CPU 1\n" +
		"        -6.0 us  CPU 0  __switch_to  kworker/0:1/9 -> server/142\n" +
		"        -1.0 us  CPU 0  try_to_wake_up  server/142\n" +
		"        +0.0 us  CPU 0  __switch_to  server/142 -> spin/160\n" +
		"        +3.0 us  CPU 1  __switch_to  swapper/1/0 -> server/142\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("shown differs (-want +got):\n%s", diff)
	}
}

func TestReadSortsAndKeepsBlanks(t *testing.T) {
	events := read(t, "20 1 f\n10 0 g\t7 0 a b\n")
	want := []Event{
		{At: 10 * time.Nanosecond, Name: "g", Threads: []Thread{{PID: 7, Name: "a b"}}},
		{At: 20 * time.Nanosecond, CPU: 1, Name: "f"},
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
}

func TestReadNamesTheLine(t *testing.T) {
	for _, bad := range []string{"x 0 f", "-1 0 f", "1 0", "1 zero f", "1 0 f\t7 0", "1 0 f\tx 0 name", "1 0 f\t1 -1 name", ""} {
		if _, err := Read(strings.NewReader("1 0 f\n" + bad + "\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("read %q: %v, want an error at line 2", bad, err)
		}
	}
}

// FuzzRead checks that no text panics, that events are in order and that no wait is
// negative.
func FuzzRead(f *testing.F) {
	f.Add(overtaken)
	f.Add("1 0 __switch_to\t0 0 a\t0 0 b\n")
	f.Fuzz(func(t *testing.T, text string) {
		events, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, w := range Waits(events) {
			if w.For() < 0 {
				t.Errorf("a wait of %s", w.For())
			}
			Show(&bytes.Buffer{}, w, events)
		}
	})
}

func TestPointsNeedSymbolsAndBTF(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":     {"", "no BTF"},
		"no function": {"ffffffff81000000 T _text\n\x9f\xeb\x01", "no function try_to_wake_up"},
		"bad address": {"zz T try_to_wake_up\n\x9f\xeb\x01", "symbol try_to_wake_up"},
		"bad BTF":     {"1 T try_to_wake_up\n2 T __switch_to\n\x9f\xeb\x01", "read BTF"},
	} {
		if _, err := parsePoints([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestWritePoints(t *testing.T) {
	p := Points{at: map[string]uint64{functionWake: 0xffffffff813d68c0, functionSwitch: 0xffffffff812e7ff0}, state: 24, pid: 2408, comm: 2936}
	path := filepath.Join(t.TempDir(), "points")
	if err := p.Write(path, "/out/trace"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = "out /out/trace\ntask 24 2408 2936\nat ffffffff813d68c0 1 try_to_wake_up\nat ffffffff812e7ff0 2 __switch_to\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("points differ (-want +got):\n%s", diff)
	}
}
