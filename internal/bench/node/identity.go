// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench"
)

// schedFiles are where the kernel says which sched_ext scheduler is live.
var schedFiles = []string{
	"/sys/kernel/sched_ext/state", "/sys/kernel/sched_ext/root/ops", "/sys/kernel/sched_ext/enable_seq",
}

const switchAllFile = "/sys/kernel/sched_ext/switch_all"

// sampleSched reads the scheduler's identity now, and whether it has all threads.
func sampleSched(start time.Duration) bench.SchedSample {
	var values []string
	for _, path := range schedFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			text = nil // a kernel without sched_ext, or none attached
		}
		values = append(values, strings.TrimSpace(string(text)))
	}
	s := schedSample(monotonic()-start, values)
	if text, err := os.ReadFile(switchAllFile); err == nil {
		s.All = new(strings.TrimSpace(string(text)) == "1")
	}
	return s
}

// schedSample makes a sample of the contents of schedFiles. A kernel without
// sched_ext has none, and no scheduler but its own.
func schedSample(at time.Duration, values []string) bench.SchedSample {
	s := bench.SchedSample{At: at, State: values[0], Ops: values[1]}
	s.EnableSeq, _ = strconv.ParseUint(values[2], 10, 64)
	return s
}

// glance reads the identity within a window, where every instruction is taken
// from a pod: of files opened beforehand, which cost a tenth of opening them. A
// scheduler that has gone took its name's file with it.
type glance struct{ fds []int }

func newGlance() *glance {
	g := &glance{}
	for _, path := range schedFiles {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			fd = -1
		}
		g.fds = append(g.fds, fd)
	}
	return g
}

func (g *glance) sample(start time.Duration) bench.SchedSample {
	var values []string
	for _, fd := range g.fds {
		var buf [128]byte
		n := 0
		if fd >= 0 {
			n, _ = unix.Pread(fd, buf[:], 0)
		}
		values = append(values, strings.TrimSpace(string(buf[:max(n, 0)])))
	}
	return schedSample(monotonic()-start, values)
}
