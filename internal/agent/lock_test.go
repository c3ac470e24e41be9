// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestAgentIsKnownToRun: whoever asks on the node learns that an agent runs there,
// also while it does not hold the node, and of two while one is left; and who
// holds it, as what. Asking disturbs nobody.
func TestAgentIsKnownToRun(t *testing.T) {
	dir := t.TempDir()
	check := func(when string, runs bool, role Role) {
		t.Helper()
		attended, err := Attended(dir)
		if err != nil || attended != runs {
			t.Errorf("%s: an agent runs: %v, %v", when, attended, err)
		}
		h, err := Holder(dir)
		if err != nil || (h == nil) != (role == "") || h != nil && (h.Role != role || h.Owner != strconv.Itoa(os.Getpid())) {
			t.Errorf("%s: held by %+v, %v; want %q", when, h, err, role)
		}
	}
	check("before all", false, "")
	play(t, func(c *Config) { c.RunDir = dir }, healthy, func(t *testing.T, a *Agent, w *world) {
		w.tell(ready())
		time.Sleep(time.Second)
		w.expect(t, ReasonAttached)
		check("attached", true, AsAgent)
		s := ready()
		s.Node.SafeMode = true
		w.tell(s)
		w.expect(t, ReasonSafeMode)
		check("in safe mode", true, "")
		w.run(t, dir)
		check("beside a temper run", true, AsRun)

		next, err := Attend(dir)
		if err != nil || next == nil {
			t.Fatalf("a second agent: %v, %v", next, err)
		}
		next.Release()
		check("when another one has gone", true, AsRun)
	})
	if runs, err := Attended(dir); runs || err != nil {
		t.Errorf("after the agent's end one runs: %v, %v", runs, err)
	}
}

// TestAskingIsNotHolding: while somebody looks who holds the node, another one can.
func TestAskingIsNotHolding(t *testing.T) {
	dir := t.TempDir()
	first, err := HoldNode(dir, AsRun)
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	asking, held, err := look(dir, nodeLock)
	if err != nil || held {
		t.Fatalf("after its release it is held: %v, %v", held, err)
	}
	defer asking.Close()
	l, err := HoldNode(dir, AsAgent)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}

// TestOwnerBeforeRoles: a lock that an earlier version signed names the process.
func TestOwnerBeforeRoles(t *testing.T) {
	dir := t.TempDir()
	l, err := HoldNode(dir, AsRun)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if _, err := l.file.WriteAt([]byte("4711\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := l.file.Truncate(5); err != nil {
		t.Fatal(err)
	}
	if h, err := Holder(dir); err != nil || h == nil || h.Owner != "4711" || h.Role != "" {
		t.Errorf("held by %+v, %v", h, err)
	}
}
