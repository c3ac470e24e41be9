// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

// An arm's words, a run's seed and the kernel's command line within the emulator's are no
// machine's.
func TestApartIsWhatWasStartedOtherwise(t *testing.T) {
	was := bench.Machine{Kernel: "7.2.13", Cmdline: "quiet", EmulatorArgs: []string{"-append", "quiet", "-m", "2G", "-seed", "1", "-smp", "4"}}
	for want, change := range map[string]func(*bench.Machine){
		"": func(m *bench.Machine) {
			m.Cmdline = "quiet preempt=full"
			m.EmulatorArgs = []string{"-append", "quiet preempt=full", "-m", "2G", "-seed", "2", "-smp", "4"}
		},
		`kernel was "7.2.13", is "7.3"`:                                  func(m *bench.Machine) { m.Kernel = "7.3" },
		`kernel's command line had "", has "nohz=off"`:                   func(m *bench.Machine) { m.Cmdline += " nohz=off" },
		`emulator's command line had "-m 2G", has "-m 4G"`:               func(m *bench.Machine) { m.EmulatorArgs = []string{"-m", "4G", "-smp", "4"} },
		`emulator's command line had "-m 2G -smp 4", has "-smp 4 -m 2G"`: func(m *bench.Machine) { m.EmulatorArgs = []string{"-smp", "4", "-m", "2G"} },
		`emulator's command line had "", has "-nodefaults"`:              func(m *bench.Machine) { m.EmulatorArgs = []string{"-nodefaults", "-m", "2G", "-smp", "4"} },
	} {
		is := was
		change(&is)
		if got := strings.Join(Apart(was, is), "\n"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
