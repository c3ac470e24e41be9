// SPDX-License-Identifier: Apache-2.0

// Command busy measures inside a guest what each CPU does, and how late a timer
// wakes CPU 0, beside busy CPUs. It prints one line for each step:
//
//	loops 2 24088 24091         two busy CPUs and the loops of each
//	wakes 3 54230 56378         three busy CPUs, p50 and p99 delay on CPU 0 in ns
//	pipes 2 21350               two CPUs hand a byte to and fro, and how often
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's start-up work keeps CPUs busy for seconds; the processes of a step
// need time to reach their CPUs.
const (
	settle = 5 * time.Second
	gather = 50 * time.Millisecond
	window = 200 * time.Millisecond
)

// A wake every millisecond and a bit, so that it falls anywhere between ticks.
const (
	nrWakes  = 150
	interval = 1037 * time.Microsecond
)

func main() {
	log.SetFlags(0)
	start := flag.Int64("start", 0, "when to begin, in nanoseconds of the monotonic clock")
	what := flag.String("what", "", "measure loops, wakes, ping or pong; empty: run all steps")
	flag.Parse()
	if *what != "" {
		fmt.Println(measure(*what, *start))
		return
	}
	time.Sleep(settle)
	// Printed at the end: how long a write to the host takes depends on the host, and
	// would move the steps that follow.
	var said strings.Builder
	for _, busy := range []int{1, 2, 4} {
		fmt.Fprintln(&said, "loops", busy, strings.Join(step(loopsOn(0, busy)), " "))
	}
	for _, busy := range []int{0, 3} {
		onZero := []counter{{"wakes", 0}}
		fmt.Fprintln(&said, "wakes", busy, step(append(onZero, loopsOn(1, busy)...))[0])
	}
	fmt.Fprintln(&said, "pipes", 2, step([]counter{{"ping", 0}, {"pong", 1}})[0])
	fmt.Print(said.String())
}

// counter is one process of a step.
type counter struct {
	what string
	cpu  int
}

func loopsOn(first, n int) (c []counter) {
	for cpu := range n {
		c = append(c, counter{"loops", first + cpu})
	}
	return c
}

// step runs the counters at the same time and returns what each printed. A process
// inherits its CPU: bound later, its runtime's other threads would roam.
func step(counters []counter) []string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	there, back := pipe(), pipe()
	start := monotonic() + gather.Nanoseconds()
	var running []*exec.Cmd
	for _, c := range counters {
		bind(c.cpu)
		cmd := exec.Command(os.Args[0], "-what", c.what, "-start", strconv.FormatInt(start, 10))
		cmd.Stdout, cmd.Stderr = new(strings.Builder), os.Stderr
		cmd.ExtraFiles = []*os.File{there.r, there.w, back.r, back.w}
		cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
		if err := cmd.Start(); err != nil {
			log.Fatalf("start %s on CPU %d: %v", c.what, c.cpu, err)
		}
		running = append(running, cmd)
	}
	bind(0, 1, 2, 3)
	var results []string
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil {
			log.Fatalf("measure %s on CPU %d: %v", counters[i].what, counters[i].cpu, err)
		}
		results = append(results, strings.TrimSpace(cmd.Stdout.(*strings.Builder).String()))
	}
	return results
}

type pipeEnds struct{ r, w *os.File }

func pipe() pipeEnds {
	r, w, err := os.Pipe()
	if err != nil {
		log.Fatalf("make pipe: %v", err)
	}
	return pipeEnds{r, w}
}

func bind(cpus ...int) {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		log.Fatalf("bind to CPUs %v: %v", cpus, err)
	}
}

func measure(what string, start int64) string {
	debug.SetGCPercent(-1)
	switch what {
	case "wakes":
		delays := wakes(start)
		return fmt.Sprint(delays[nrWakes/2], " ", delays[nrWakes*99/100])
	case "ping":
		return strconv.Itoa(handOver(start, thereW, backR))
	case "pong":
		return strconv.Itoa(handOver(start, backW, thereR))
	default:
		return strconv.Itoa(loops(start))
	}
}

// loops returns the number of rounds of a thousand additions in the window, which
// is longer than all wakes together.
func loops(start int64) int {
	for monotonic() < start {
	}
	rounds, sum := 0, 0
	for end := start + window.Nanoseconds(); monotonic() < end; rounds++ {
		for i := range 1000 {
			sum += i ^ rounds
		}
	}
	runtime.KeepAlive(sum)
	return rounds
}

// wakes returns the sorted delays from a timer's time until the thread runs.
func wakes(start int64) []int64 {
	delays := make([]int64, 0, nrWakes)
	for i := range nrWakes {
		at := start + int64(i+1)*interval.Nanoseconds()
		ts := unix.NsecToTimespec(at)
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil); err != nil {
			log.Fatalf("sleep: %v", err)
		}
		delays = append(delays, monotonic()-at)
	}
	slices.Sort(delays)
	return delays
}

// The pipes' ends as every process of a step inherits them.
const (
	thereR = 3 + iota
	thereW
	backR
	backW
)

// handOver writes a byte and waits for one until the window is over. Both sides
// start with writing, so there are two bytes under way and either side may find
// one waiting or have to sleep.
func handOver(start int64, to, from int) int {
	rounds, b := 0, []byte{0}
	for end := start + window.Nanoseconds(); monotonic() < end; rounds++ {
		if _, err := unix.Write(to, b); err != nil {
			log.Fatalf("write to pipe: %v", err)
		}
		if _, err := unix.Read(from, b); err != nil {
			log.Fatalf("read from pipe: %v", err)
		}
	}
	// The other side may wait for one more.
	_, _ = unix.Write(to, b)
	return rounds
}

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		log.Fatalf("read the clock: %v", err)
	}
	return ts.Nano()
}
