// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

// stormGroups is how many limited cgroups exist at once.
const stormGroups = 2000

// TestLimitStorm has 2,000 limited cgroups come and go and their limits change
// at random, while threads that wait at them are stopped, moved and killed,
// beside stress-ng. Nothing may eject Temper, and at the end nothing is left.
func TestLimitStorm(t *testing.T) {
	requireGuest(t)
	if _, err := exec.LookPath("stress-ng"); err != nil {
		t.Skip("needs stress-ng: run it by make guest")
	}
	lasts := soakTime(t)
	s := attach(t, Config{})
	storm := newStorm(t)
	apply(t, s, planGroup(t, storm.dir, policy.Group{Tier: tier.Standard}))
	ctx, cancel := context.WithTimeout(t.Context(), lasts+time.Minute)
	defer cancel()
	chaos := testCgroup(t, "chaos")
	write(t, chaos, "cpu.max", "50000 100000")
	stress := stressNG(ctx, t, chaos, lasts)
	steps := 0
	for began := time.Now(); time.Since(began) < lasts; steps++ {
		storm.step()
		if steps%64 == 0 {
			stillAttached(t, s)
			time.Sleep(10 * time.Millisecond)
		}
	}
	kill(stress)
	write(t, chaos, "cgroup.kill", "1")
	storm.end()
	stillAttached(t, s)
	t.Logf("%d steps: %v", steps, storm.done)
	wantNoLimits(t, s, chaos)
}

// wantNoLimits waits for the kernel to let go of cgroups that are gone.
func wantNoLimits(t *testing.T, s *Scheduler, but string) {
	t.Helper()
	var left []LimitStats
	for range 100 {
		limits, err := s.Limits()
		if err != nil {
			t.Fatal(err)
		}
		left = left[:0]
		for _, l := range limits {
			if l.ID != cgroupID(t, but) {
				left = append(left, l)
			}
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d limits of cgroups that are gone are still held, one of them %+v", len(left), left[0])
}

// limitStorm is the state of the storm: cgroups, and the processes in them.
type limitStorm struct {
	t     *testing.T
	dir   string
	exist [stormGroups]bool
	procs [8]*exec.Cmd
	done  map[string]int
}

func newStorm(t *testing.T) *limitStorm {
	w := &limitStorm{t: t, dir: testCgroup(t, "storm"), done: make(map[string]int)}
	write(t, w.dir, "cgroup.subtree_control", "+cpu")
	t.Cleanup(w.end)
	for i := range stormGroups {
		w.create(i)
	}
	for i := range w.procs {
		w.procs[i] = spinners(t, w.path(rand.IntN(stormGroups)), 1+rand.IntN(6), anyCPU)
	}
	return w
}

func (w *limitStorm) path(i int) string { return filepath.Join(w.dir, strconv.Itoa(i)) }

func (w *limitStorm) create(i int) {
	if err := os.Mkdir(w.path(i), 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.exist[i] = true
	w.limit(i)
}

// limit draws a limit; one in eight is lifted.
func (w *limitStorm) limit(i int) {
	period := []int{1000, 10_000, 100_000, 1_000_000}[rand.IntN(4)]
	text := fmt.Sprintf("%d %d", 1000+rand.IntN(3*period), period)
	if rand.IntN(8) == 0 {
		text = "max"
	}
	w.write(i, "cpu.max", text)
}

// write fails only if the cgroup is there and the kernel refuses.
func (w *limitStorm) write(i int, file, text string) bool {
	err := os.WriteFile(filepath.Join(w.path(i), file), []byte(text), 0o644)
	// A process may be gone before it is moved.
	if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EINVAL) {
		w.t.Fatalf("write %q to %s of cgroup %d: %v", text, file, i, err)
	}
	return err == nil
}

func (w *limitStorm) step() {
	i, p := rand.IntN(stormGroups), rand.IntN(len(w.procs))
	pid := w.procs[p].Process.Pid
	switch what := rand.IntN(16); {
	case !w.exist[i]:
		w.create(i)
		w.done["created"]++
	case what < 6:
		w.limit(i)
		w.done["limits"]++
	case what < 10:
		// Not empty is an answer, too.
		if os.Remove(w.path(i)) == nil {
			w.exist[i] = false
			w.done["removed"]++
		}
	case what < 13:
		if w.write(i, "cgroup.procs", strconv.Itoa(pid)) {
			w.done["moved"]++
		}
	case what < 14:
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		w.done["stopped"]++
	case what < 15:
		_ = syscall.Kill(pid, syscall.SIGCONT)
	default:
		began := time.Now()
		kill(w.procs[p])
		if took := time.Since(began); inVirtualTime() && took > 5*time.Second {
			w.t.Errorf("a process took %v to die", took)
		}
		w.procs[p] = spinners(w.t, w.path(i), 1+rand.IntN(6), anyCPU)
		w.done["killed"]++
	}
}

func (w *limitStorm) end() {
	for _, p := range w.procs {
		if p != nil && p.ProcessState == nil {
			kill(p)
		}
	}
	for i := range stormGroups {
		if w.exist[i] && os.Remove(w.path(i)) == nil {
			w.exist[i] = false
		}
	}
}
