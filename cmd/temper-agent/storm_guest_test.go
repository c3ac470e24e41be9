// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/sched"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// TestGuestPodStorm makes and removes pods faster than any kubelet does.
func TestGuestPodStorm(t *testing.T) {
	const (
		perSecond = 50
		alive     = 60
		within    = 250 * time.Millisecond // the promise, p99
		requests  = 5                      // the promise, per second
	)
	b := newBed(t, enforce)
	b.populate()
	before, asked := b.state(), b.api.Asked()
	s, err := sched.Open(pinDir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var took []time.Duration
	waiting := map[uint64]time.Time{}
	look := func() {
		p, err := s.Plan()
		if err != nil {
			return // it was being replaced
		}
		for _, g := range p.Groups {
			if since, ok := waiting[g.ID]; ok {
				took = append(took, time.Since(since))
				delete(waiting, g.ID)
			}
		}
	}
	length := time.Duration(times(t, "TEMPER_STORM", 5)) * time.Second
	began, live, made := time.Now(), []*pod(nil), 0
	for ; time.Since(began) < length; made++ {
		p := b.told(kubetest.Pod{Name: fmt.Sprintf("storm-%d", made), UID: kubetest.UID(1000 + made), QoS: []string{"Burstable", "BestEffort"}[made%2]})
		p.makeCgroup()
		waiting[id(p.dir)] = time.Now()
		if live = append(live, p); len(live) > alive {
			delete(waiting, id(live[0].dir)) // it lived for more than a second
			live[0].gone()
			live = live[1:]
		}
		for next := began.Add(time.Duration(made) * time.Second / perSecond); ; {
			if look(); !time.Now().Before(next) {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	lasted := time.Since(began)
	eventually(t, settleWithin, "the last pods are effective", func() bool { look(); return len(waiting) == 0 })
	spent := b.api.Asked() - asked
	after := b.state()
	slices.Sort(took)
	p99 := took[min(len(took)-1, len(took)*99/100)]
	t.Logf("%d pods in %v: effective p50 %v, p99 %v, max %v; %d requests; %d plans", made, lasted, took[len(took)/2], p99, took[len(took)-1], spent, after.Generation-before.Generation)
	if !after.Attached || after.EnableSeq != before.EnableSeq {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if len(took) < made*99/100 || p99 > slack*within {
		t.Errorf("%d of %d pods were effective, p99 %v", len(took), made, p99)
	}
	if most := requests * (lasted.Seconds() + 1); float64(spent) > most {
		t.Errorf("%d requests in %v", spent, lasted)
	}
}

// TestGuestFootprint has as many pods as kubelet allows by default.
func TestGuestFootprint(t *testing.T) {
	const pods, mostMiB = 110, 64
	b := newBed(t, enforce)
	for i := range pods {
		b.pod(kubetest.Pod{Name: fmt.Sprintf("pod-%d", i), UID: kubetest.UID(1 + i), MilliCPU: 10, Priority: i % 3 * 500_000})
	}
	p := b.start()
	b.attached()
	eventually(t, attachWithin, "every pod is in the plan", func() bool { return len(b.plan()) == 3+pods })
	quiet := share(t, p.Process.Pid, func() {})
	scraped := share(t, p.Process.Pid, func() { get("/metrics") })
	rss := residentMiB(t, p.Process.Pid)
	t.Logf("at %d pods: %d MiB resident, %.1f %% of a CPU, %.1f %% when scraped each second", pods, rss, 100*quiet, 100*scraped)
	if rss > mostMiB {
		t.Errorf("%d MiB resident, promised are %d", rss, mostMiB)
	}
}

// share is the part of a CPU that a process uses while something is done each second.
func share(t *testing.T, pid int, do func()) float64 {
	t.Helper()
	before, began := cpuTime(t, pid), time.Now()
	for time.Since(began) < 4*time.Second {
		do()
		time.Sleep(time.Second)
	}
	return float64(cpuTime(t, pid)-before) / float64(time.Since(began))
}

func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20
}

// cpuTime is what all threads of a process have run.
func cpuTime(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		if err != nil {
			continue
		}
		if ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64); err == nil {
			sum += time.Duration(ns)
		}
	}
	return sum
}

// TestGuestClock sets the time of day by a year, both ways.
func TestGuestClock(t *testing.T) {
	b := newBed(t, enforce+"deadMan: 2s\n")
	b.populate()
	before := b.state()
	start, began := wallClock(t), time.Now()
	t.Cleanup(func() { setClock(t, start.Add(time.Since(began))) })
	for _, years := range []int{1, -1} {
		setClock(t, start.AddDate(years, 0, 0))
		for later := time.Now().Add(4 * time.Second); time.Now().Before(later); time.Sleep(100 * time.Millisecond) {
			if c := b.api.Condition(); c["reason"] != "Attached" {
				t.Fatalf("%+d years: the node says %v", years, c)
			}
		}
		after := b.state()
		if !after.Attached || after.EnableSeq != before.EnableSeq {
			t.Errorf("%+d years: before %+v, after %+v", years, before, after)
		}
		eventually(t, noticeWithin*slack, "the agent is healthy", func() bool { code, _ := get("/healthz"); return code == 200 })
	}
	if said := b.api.Said(kube.EventEjected); len(said) != 0 {
		t.Errorf("events: %+v", said)
	}
}

// wallClock has no monotonic part, which setting the clock does not move.
func wallClock(t *testing.T) time.Time {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Unix(ts.Unix())
}

func setClock(t *testing.T, to time.Time) {
	t.Helper()
	ts := unix.NsecToTimespec(to.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatal(err)
	}
}

// TestGuestHotplug takes a fenced CPU off the machine and brings it back.
func TestGuestHotplug(t *testing.T) {
	b := newBed(t, enforce)
	b.populate()
	fence := b.fenceOf(b.pods[0])
	cpu := fence[len(fence)-1]
	if cpu == 0 {
		t.Fatal("the fence is CPU 0, which stays online")
	}
	setOnline(t, cpu, "0")
	t.Cleanup(func() { setOnline(t, cpu, "1") })
	after := eventually(t, settleWithin, "the fence has other CPUs", func() bool {
		fence := b.fenceOf(b.pods[0])
		return b.state().Attached && len(fence) == 1 && !slices.Contains(fence, cpu)
	})
	t.Logf("CPU %d is in no fence %v after it went offline", cpu, after)
	setOnline(t, cpu, "1")
	eventually(t, settleWithin, "the agent knows the CPU again", func() bool {
		i := slices.IndexFunc(b.report().Topology.CPUs, func(c topology.CPU) bool { return c.ID == cpu && c.Online })
		return i >= 0
	})
	b.attached()
}

func (b *bed) fenceOf(p *pod) []int {
	g, _ := p.group()
	return g.Fence
}

func setOnline(t *testing.T, cpu int, value string) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// exposition is a line of the text format with its values escaped.
var exposition = regexp.MustCompile(`^(#.*|[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)+\})? \S+)$`)

// TestGuestHostilePods lets pods say of themselves what they like.
func TestGuestHostilePods(t *testing.T) {
	b := newBed(t, enforce)
	hostile := []string{"critical", "CRITICAL", " critical", "critical\x00", "%s%n%d", "système\u202e", "../../critical", strings.Repeat("critical", 1000), "{\"tier\":\"critical\"}", "\"\n} temper_scheduler_attached 0\n"}
	pods := make([]*pod, 0, len(hostile))
	for i, text := range hostile {
		pods = append(pods, b.pod(kubetest.Pod{
			Name: text, UID: kubetest.UID(1 + i), QoS: "BestEffort",
			Annotations: map[string]string{kube.TierAnnotation: text, "kubernetes.io/config.mirror": text},
		}))
	}
	limited := pods[len(pods)-1] // its name is a label of the limit's metrics
	if err := os.WriteFile(limited.dir+"/cpu.max", []byte("20000 100000"), 0o644); err != nil {
		t.Fatal(err)
	}
	limited.spin()
	// A thread's name says nothing either.
	pods[0].spawn("sh", "-c", "while :; do printf kubelet >/proc/self/comm; printf '%%s%%n' >/proc/self/comm; done")
	for _, uid := range []string{"../../../burstable", "", strings.Repeat("0", 5000)} {
		b.api.Put("pods/hostile"+uid, kubetest.Pod{Name: "uid", UID: uid, Priority: 1_000_000, MilliCPU: 4000}.Object())
	}
	p := b.start()
	b.attached()
	for _, p := range pods {
		eventually(t, settleWithin, fmt.Sprintf("%.20q is background", p.Name), func() bool { return p.in(tier.Background) })
	}
	if plan := b.plan(); len(plan) != 3+len(pods) {
		t.Errorf("the plan has groups of nobody: %+v", plan)
	}
	eventually(t, settleWithin, "the limit paces", func() bool {
		_, body := get("/metrics")
		return strings.Contains(body, "temper_limit_paced_seconds_total{")
	})
	_, body := get("/metrics")
	for line := range strings.Lines(body) {
		if line = strings.TrimSuffix(line, "\n"); !exposition.MatchString(line) {
			t.Errorf("a series was injected: %q", line)
		}
	}
	if got := metricValue("temper_scheduler_attached"); got != "1" {
		t.Errorf("temper_scheduler_attached is %q", got)
	}
	select {
	case <-p.ended:
		t.Error("the agent has ended")
	default:
	}
}
