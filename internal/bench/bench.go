// SPDX-License-Identifier: Apache-2.0

// Package bench is the laboratory's vocabulary.
//
// An Arm is how a node is run, a Scenario is servers, load and ladder, a run is
// one scenario under one arm on one boot, a Window is one step of it as the
// node measured it, and a Record is a window with everything needed to believe
// or rerun it. Judge decides whether a record may be used. All of this is pure:
// package run boots guests, package node measures inside them, package load is
// the client, package report makes text of records.
package bench

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Arm is how the node is run: what is compared.
type Arm struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Cmdline is added to the kernel's command line.
	Cmdline []string `json:"cmdline,omitempty"`
	// BackgroundIdle sets cpu.idle=1 on the background pods.
	BackgroundIdle bool `json:"background_idle,omitempty"`
	// Ops is the sched_ext scheduler that must be live in every window, as
	// /sys/kernel/sched_ext/root/ops names it; empty for the kernel's own.
	Ops string `json:"ops,omitempty"`
}

// Arms lists the arms in the order in which reports show them.
func Arms() []Arm {
	return []Arm{
		{Name: "eevdf", Title: "EEVDF as the distribution ships it: cpu.weight as kubelet sets it, lazy preemption"},
		{
			Name: "eevdf-tuned", Title: "EEVDF at its best: cpu.idle=1 on background, preempt=full",
			Cmdline: []string{"preempt=full"}, BackgroundIdle: true,
		},
		{Name: "temper", Title: "Temper, on the distribution's defaults", Ops: "temper"},
	}
}

// ParseArms returns the arms called names, in that order.
func ParseArms(names []string) ([]Arm, error) {
	var arms []Arm
	for _, name := range names {
		arm, ok := armByName(name)
		if !ok {
			var known []string
			for _, a := range Arms() {
				known = append(known, a.Name)
			}
			return nil, fmt.Errorf("unknown arm %q: one of %s", name, strings.Join(known, ", "))
		}
		arms = append(arms, arm)
	}
	if len(arms) == 0 {
		return nil, errors.New("no arm given")
	}
	return arms, nil
}

func armByName(name string) (Arm, bool) {
	for _, a := range Arms() {
		if a.Name == name {
			return a, true
		}
	}
	return Arm{}, false
}

// Scenario is what the node has to do: a server in a critical pod, a client
// that asks it at a fixed rate, and a ladder of background spinners.
type Scenario struct {
	Name string `json:"name"`
	// Densities is the ladder: the number of background pods at each step.
	Densities []int `json:"densities"`
	// RequestMilliCPU is the critical pod's CPU request; it gives its cpu.weight.
	RequestMilliCPU int `json:"request_millicpu"`
	// Threads is the number of the server's worker threads.
	Threads int `json:"threads"`
	// Load is the client's part.
	Load Load `json:"load"`
}

// Load is what the client asks of the server.
type Load struct {
	Rate       float64 `json:"rate_rps"` // Poisson arrivals
	Conns      int     `json:"conns"`
	Keys       int     `json:"keys"`
	ValueBytes int     `json:"value_bytes"`
	SetEvery   int     `json:"set_every"` // one request in so many is a set
	// Warmup is driven but not measured. So are a pad before the window, in
	// which the node's counters are read, and two after it: the window's last
	// answers come in the first, the counters are read in the second.
	Warmup time.Duration `json:"warmup_ns"`
	Window time.Duration `json:"window_ns"`
	Pad    time.Duration `json:"pad_ns"`
}

// Total is how long the client sends.
func (l Load) Total() time.Duration { return l.Warmup + l.Window + 3*l.Pad }

// Validate names everything that makes no sense in s.
func (s Scenario) Validate() error {
	switch {
	case len(s.Densities) == 0:
		return fmt.Errorf("scenario %s: no step in the ladder", s.Name)
	case s.Threads < 1 || s.Load.Conns < s.Threads:
		return fmt.Errorf("scenario %s: %d connections cannot feed %d threads", s.Name, s.Load.Conns, s.Threads)
	case s.Load.Rate <= 0 || s.Load.Window <= 0:
		return fmt.Errorf("scenario %s: rate and window must be positive", s.Name)
	}
	for _, d := range s.Densities {
		if d < 0 {
			return fmt.Errorf("scenario %s: density %d is negative", s.Name, d)
		}
	}
	return nil
}

// MemcachedLadder is real memcached beside 0 to 16 spinners.
func MemcachedLadder() Scenario {
	return Scenario{
		Name:            "memcached-ladder",
		Densities:       []int{0, 1, 2, 4, 8, 16},
		RequestMilliCPU: 2000,
		Threads:         2,
		Load: Load{
			Rate: 10_000, Conns: 8, Keys: 1000, ValueBytes: 100, SetEvery: 10,
			Warmup: 200 * time.Millisecond, Window: 2 * time.Second, Pad: 20 * time.Millisecond,
		},
	}
}

// KubeletWeight is the cpu.weight that kubelet gives a cgroup with a CPU
// request: shares of 1024 per CPU, at least 2, mapped so that 2, 1024 and
// 262144 become 1, 100 and 10000. (Before Kubernetes 1.35 the map was linear
// and one CPU gave 39; a request of nothing gives 1 in both.)
func KubeletWeight(milliCPU int) int {
	shares := max(2, milliCPU*1024/1000)
	if shares <= 2 {
		return 1
	}
	l := math.Log2(float64(min(shares, 262144)))
	return int(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}
