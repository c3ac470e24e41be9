// SPDX-License-Identifier: Apache-2.0

// Command busy counts how many loops each CPU does when 1, 2 and 4 of them are
// busy. It runs inside a guest and prints one line for each step:
//
//	busy 2 loops 24088 24091
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
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

func main() {
	log.SetFlags(0)
	cpu := flag.Int("cpu", -1, "count on this CPU")
	start := flag.Int64("start", 0, "when to begin, in nanoseconds of the monotonic clock")
	flag.Parse()
	if *cpu >= 0 {
		fmt.Println(count(*cpu, *start))
		return
	}
	time.Sleep(settle)
	for _, busy := range []int{1, 2, 4} {
		loops, err := step(busy)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("busy %d loops %s\n", busy, strings.Join(loops, " "))
	}
}

// step runs one counting process on each of the first CPUs at the same time.
func step(busy int) ([]string, error) {
	start := monotonic() + gather.Nanoseconds()
	var counters []*exec.Cmd
	var outputs []*strings.Builder
	for cpu := range busy {
		out := new(strings.Builder)
		c := exec.Command(os.Args[0], "-cpu", strconv.Itoa(cpu), "-start", strconv.FormatInt(start, 10))
		c.Stdout, c.Stderr = out, os.Stderr
		c.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
		if err := c.Start(); err != nil {
			return nil, fmt.Errorf("start counter on CPU %d: %w", cpu, err)
		}
		counters, outputs = append(counters, c), append(outputs, out)
	}
	var loops []string
	for cpu, c := range counters {
		if err := c.Wait(); err != nil {
			return nil, fmt.Errorf("count on CPU %d: %w", cpu, err)
		}
		loops = append(loops, strings.TrimSpace(outputs[cpu].String()))
	}
	return loops, nil
}

// count loops on one CPU from start on and returns the number of rounds of a
// thousand additions.
func count(cpu int, start int64) int {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		log.Fatalf("bind to CPU %d: %v", cpu, err)
	}
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

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		log.Fatalf("read the clock: %v", err)
	}
	return ts.Nano()
}
