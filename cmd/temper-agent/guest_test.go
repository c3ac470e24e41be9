// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/agent/agenttest"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// Bounds on an emulated machine that shares its host; on metal each is far smaller.
const (
	attachWithin = 3 * time.Minute  // load, verify, attach
	settleWithin = 30 * time.Second // a state that the node is on the way to
	slack        = 10               // by which an emulated machine may miss what is promised of a real one

	noticeWithin = time.Second     // the promise about ejects
	backWithin   = 5 * time.Second // the promise about attaching when nothing is in the way any more
)

const (
	roleEnv   = "TEMPER_TEST_ROLE"
	agentPort = "127.0.0.1:19464"
	pinDir    = sched.DefaultPinDir
	// ownProbeDir is where the agent's probe is pinned while it has no scheduler.
	ownProbeDir = pinDir + "_own_probe"
)

// TestMain makes the test binary the agent, where a test starts it as one: so it
// can be killed, stopped and replaced as on a node.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "agent" {
		main()
		return
	}
	os.Exit(m.Run())
}

// requireGuest skips a test that changes its machine's scheduler, unless that
// machine is a guest whose kernel can do. REQUIRE_ALL=1 makes the skip a failure.
func requireGuest(t *testing.T) {
	t.Helper()
	switch {
	case os.Getenv("TEMPER_GUEST") != "1" && os.Getenv("REQUIRE_ALL") == "1":
		t.Fatal("needs a guest: run it by make guest")
	case os.Getenv("TEMPER_GUEST") != "1":
		t.Skip("needs a guest: run it by make guest")
	case os.Getenv("TEMPER_EXPECT") != "" && t.Name() != "TestRefusedKernel":
		t.Skip("TestRefusedKernel is for this guest's kernel")
	}
}

// bed is a node: an API server, the cgroups that kubelet makes, and agents.
type bed struct {
	t          *testing.T
	api        *kubetest.Server
	config     string
	kubeconfig string
	runDir     string
	program    string // what agents are started from
	pods       []*pod
	agents     []*process
}

// enforce is the configuration of most tests: attach at once.
const enforce = "mode: enforce\nsettle: 0s\n"

func newBed(t *testing.T, config string) *bed {
	t.Helper()
	requireGuest(t)
	dir := t.TempDir()
	b := &bed{
		t: t, api: newAPI(t), config: filepath.Join(dir, "agent.yaml"), runDir: filepath.Join(dir, "run"),
		program: "/proc/self/exe",
	}
	var err error
	if b.kubeconfig, err = b.api.Kubeconfig(dir); err != nil {
		t.Fatal(err)
	}
	b.configure(config)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	b.api.Put(kubetest.NodePath, kubetest.Node(strings.TrimSpace(string(boot))))
	b.makeKubepods()
	t.Cleanup(b.clear)
	return b
}

func (b *bed) configure(text string) {
	b.t.Helper()
	if err := os.WriteFile(b.config, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// clear leaves the machine as the next test expects it.
func (b *bed) clear() {
	if s, err := sched.Open(pinDir); err == nil {
		if err := s.Detach(); err != nil {
			b.t.Error(err)
		}
	}
	for _, dir := range allPins() {
		_ = os.RemoveAll(dir)
	}
}

// process is an agent in the background.
type process struct {
	*exec.Cmd
	t     *testing.T
	log   agenttest.Transcript
	ended chan struct{}
}

// start runs an agent until it is killed or the test ends. Its log is shown
// when the test has failed.
func (b *bed) start() *process {
	b.t.Helper()
	p := &process{t: b.t, ended: make(chan struct{})}
	p.Cmd = exec.Command(b.program, "--config", b.config, "--node-name", kubetest.NodeName, "--kubeconfig", b.kubeconfig,
		"--listen", agentPort, "--run-dir", b.runDir, "--pin-dir", pinDir, "--log-level", "debug")
	p.Env = append(os.Environ(), roleEnv+"=agent")
	p.Stdout, p.Stderr = &p.log, &p.log
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.agents = append(b.agents, p)
	go func() {
		_ = p.Wait() // the state says it
		close(p.ended)
	}()
	b.t.Cleanup(func() {
		p.kill()
		if b.t.Failed() {
			b.t.Logf("agent %d said:\n%s", p.Process.Pid, p.log.String())
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// end asks it to end, as kubelet does.
func (p *process) end() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(settleWithin):
		p.t.Fatalf("the agent still runs %v after SIGTERM", settleWithin)
	}
	if code := p.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("exit code %d after SIGTERM", code)
	}
}

// eventually waits until what holds, and returns how long that took.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// attached waits for the scheduler, and for all that says so.
func (b *bed) attached() sched.State {
	b.t.Helper()
	var state sched.State
	eventually(b.t, attachWithin, "the scheduler is attached and the node says so", func() bool {
		state = b.state()
		return state.Attached && b.says("True", "Attached", "attached")
	})
	return state
}

// says tells whether the node object has that condition and label.
func (b *bed) says(status, reason, engine string) bool {
	c := b.api.Condition()
	return c["status"] == status && c["reason"] == reason && engineLabel(b.api) == engine
}

func (b *bed) state() sched.State {
	b.t.Helper()
	s, err := sched.ReadState(pinDir)
	if err != nil {
		return sched.State{} // pins are being made or removed
	}
	return s
}

// kernelState is the kernel's own word.
func kernelState(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/sys/kernel/sched_ext/state")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// plan is the plan in force, by cgroup id.
func (b *bed) plan() map[uint64]policy.Group {
	b.t.Helper()
	groups := map[uint64]policy.Group{}
	s, err := sched.Open(pinDir)
	if err != nil {
		return groups
	}
	defer s.Close()
	p, err := s.Plan()
	if err != nil {
		return groups
	}
	for _, g := range p.Groups {
		groups[g.ID] = g
	}
	return groups
}

// allPins are the directories that a process which was killed may leave.
func allPins() (dirs []string) {
	for _, dir := range []string{pinDir, sched.DefaultProbeDir, ownProbeDir} {
		dirs = append(dirs, dir, dir+"_new")
	}
	return dirs
}

func (b *bed) noPins() {
	b.t.Helper()
	for _, dir := range allPins() {
		if entries, err := os.ReadDir(dir); err == nil {
			b.t.Errorf("%s holds %v", dir, entries)
		}
	}
}

// get reads what the agent serves; empty while it does not.
func get(path string) (code int, body string) {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + agentPort + path)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(text)
}

func (b *bed) report() (r agent.Report) {
	b.t.Helper()
	if code, body := get("/status"); code == http.StatusOK {
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			b.t.Fatalf("%v in %s", err, body)
		}
	}
	return r
}

// metricValue is the value of a series as /metrics has it, "" if it is absent.
func metricValue(series string) string {
	_, body := get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}
