// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/temper-sched/temper/cmd/temper/plugin"
	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/sched"
)

var update = flag.Bool("update", false, "rewrite what scripts compare output with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"temper": func() {
			n := liveNode()
			if dir := os.Getenv("NODE"); dir != "" {
				n = kernel{dir}.node()
			}
			os.Exit(execute(stopContext(context.Background()), n, os.Args[1:]))
		},
		plugin.Name: main,
	})
}

// TestScripts runs the subcommands against a node of four CPUs in two cores
// whose kernel is played by a file.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("NODE", filepath.Join(env.WorkDir, "node"))
			return layOut(filepath.Join(env.WorkDir, "node"))
		},
		Condition: hangup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"limit":  limit,
			"told":   told,
			"expect": expect,
			"eject":  eject,
			"busy":   busy,
			"await":  await,
			"agent":  playAgent,
		},
	})
}

// hangup is the scripts' condition that a closed terminal can be played:
// whoever runs the tests under nohup has children that ignore it.
func hangup(condition string) (bool, error) {
	if condition != "hangup" {
		return false, fmt.Errorf("unknown condition %q", condition)
	}
	return !signal.Ignored(syscall.SIGHUP), nil
}

// layOut makes the node's files.
func layOut(dir string) error {
	files := map[string]string{
		"sys/cpu/online":                 "0-3\n",
		"sys/node/node0/cpulist":         "0-3\n",
		"cgroup/cgroup.controllers":      "cpuset cpu io memory pids\n",
		"cgroup/shop/front/cpu.weight":   "100\n",
		"cgroup/shop/search/cpu.weight":  "100\n",
		"cgroup/batch/report/cpu.weight": "1\n",
	}
	for cpu, siblings := range []string{"0-1", "0-1", "2-3", "2-3"} {
		files["sys/cpu/cpu"+strconv.Itoa(cpu)+"/topology/thread_siblings_list"] = siblings
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// expect CODE COMMAND... runs a command that must exit with that code.
func expect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: expect CODE COMMAND...")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func scriptKernel(ts *testscript.TestScript) kernel { return kernel{ts.Getenv("NODE")} }

// eject REASON MESSAGE ends the attached scheduler.
func eject(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(scriptKernel(ts).update(func(h *held) error {
		h.end(sched.Reason(args[0]), strings.Join(args[1:], " "))
		return nil
	}))
}

// busy fills the counters; with a name, another scheduler is loaded.
func busy(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(scriptKernel(ts).update(func(h *held) error {
		h.Stats, h.Reads = readings(), 0
		if len(args) > 0 {
			h.State = sched.State{Kernel: "enabled", Ops: args[0]}
		}
		return nil
	}))
}

// limit CGROUP makes the scheduler hold a limit for it, and one for a cgroup
// that is gone; with a number after it, so many found no slot.
func limit(ts *testscript.TestScript, _ bool, args []string) {
	tree, err := scriptKernel(ts).node().tree()
	ts.Check(err)
	id, err := tree.ID(args[0])
	ts.Check(err)
	ts.Check(scriptKernel(ts).update(func(h *held) (err error) {
		h.Limits = limitReadings(id)
		if len(args) > 1 {
			h.LimitsNotHeld, err = strconv.ParseUint(args[1], 10, 64)
		}
		return err
	}))
}

// told LIMIT... returns when the kernel side was told of these limits, each as
// path=quota/period+burst, and of no others.
func told(ts *testscript.TestScript, _ bool, args []string) {
	var got []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		h, err := scriptKernel(ts).read()
		ts.Check(err)
		got = nil
		for _, l := range h.LimitsSet {
			got = append(got, fmt.Sprintf("%s=%d/%d+%d", l.Cgroup, l.QuotaUs, l.PeriodUs, l.BurstUs))
		}
		if slices.Equal(got, args) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	ts.Fatalf("told of %v, want %v", got, args)
}

// agent comes|heeds|dies plays a node agent: it attaches and holds the node, lets go of it
// once safe mode is asked for and a command waits, or dies and leaves the scheduler attached.
func playAgent(ts *testscript.TestScript, _ bool, args []string) {
	k := scriptKernel(ts)
	dir := k.node().runDir
	switch args[0] {
	case "comes":
		here, err := agent.Attend(dir)
		ts.Check(err)
		node, err := agent.HoldNode(dir, agent.AsAgent)
		ts.Check(err)
		agents.Store(dir, []*agent.Lock{node, here})
		ts.Check(k.update(func(h *held) error {
			h.State = sched.State{Attached: true, Kernel: "enabled", Ops: sched.Name, EnableSeq: 1, DeadMan: 30 * time.Second, HeartbeatAge: 12 * time.Second}
			h.Unpinned = false
			return nil
		}))
	case "heeds":
		before, err := k.read()
		ts.Check(err)
		go func() {
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				_, err := os.Stat(agent.SafeModeFile(dir))
				now, _ := k.read()
				if err == nil && now.Looks > before.Looks {
					break
				}
			}
			_ = k.update(func(h *held) error { h.end(sched.Stopped, "safe mode"); return nil }) // else the script fails
			leave(dir, 1)
		}()
	case "dies":
		leave(dir, 2)
	}
}

// agents are the locks of those that are played, by their directories.
var agents sync.Map

// leave releases the first locks.
func leave(dir string, n int) {
	locks, _ := agents.Load(dir)
	for _, l := range locks.([]*agent.Lock)[:n] {
		l.Release()
	}
}

// await GENERATION returns when a plan of that generation is in force and
// recorded, which a "temper run" in the background brings about.
func await(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		h, err := scriptKernel(ts).read()
		ts.Check(err)
		_, recorded, err := loadRecord(scriptKernel(ts).node().runDir, h.State)
		ts.Check(err)
		if recorded && strconv.FormatUint(h.State.Generation, 10) == args[0] {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	ts.Fatalf("plan %s is not in force after 20 s", args[0])
}
