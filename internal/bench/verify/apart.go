// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
)

// Apart lists why windows of two machines cannot stand in one file: the machines differ, or
// were started otherwise. What an arm or a run has of its own is left out.
func Apart(was, is bench.Machine) []string {
	out := bench.Differences(was, is)
	for _, f := range []struct {
		whose   string
		was, is []string
	}{
		{"emulator", startOptions(was), startOptions(is)},
		{"kernel", startWords(was), startWords(is)},
	} {
		if slices.Equal(f.was, f.is) {
			continue
		}
		had, has := onlyIn(f.was, f.is), onlyIn(f.is, f.was)
		if len(had)+len(has) == 0 { // it is the order, or something is there twice
			had, has = f.was, f.is
		}
		out = append(out, fmt.Sprintf("%s's command line had %q, has %q", f.whose, strings.Join(had, " "), strings.Join(has, " ")))
	}
	return out
}

// startOptions are the emulator's arguments, each with its value. A run has its own seed,
// and what is appended is the kernel's command line.
func startOptions(m bench.Machine) []string {
	var out []string
	for _, arg := range m.EmulatorArgs {
		if len(out) == 0 || strings.HasPrefix(arg, "-") {
			out = append(out, arg)
		} else {
			out[len(out)-1] += " " + arg
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return strings.HasPrefix(s, "-seed ") || strings.HasPrefix(s, "-append ") })
}

// startWords are the kernel's command line without the words that are an arm's.
func startWords(m bench.Machine) []string {
	words := strings.Fields(m.Cmdline)
	for _, arm := range bench.Arms() {
		words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(arm.Cmdline, w) })
	}
	return words
}

// onlyIn is what one list has and another has not.
func onlyIn(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}
