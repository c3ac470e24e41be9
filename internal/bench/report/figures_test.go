// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// Two arms under which background has all that was left do not stand in one place if one
// of them leaves less.
func TestFrontierIsOfTheCPUsThatBackgroundGets(t *testing.T) {
	c := short(5, "eevdf", "temper")
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		if step.Density > 0 {
			if s.Background = 2.64; arm == "temper" {
				s.Background = 2.22
			}
			s.Critical = 3 - s.Background // nothing is idle
		}
		return s
	}
	text := plainText(render(t, made(t, c), "frontier"))
	_, frontier, _ := strings.Cut(text, `aria-label="p99 over that of eevdf without background, against the CPUs that background gets"`)
	frontier, _, _ = strings.Cut(frontier, "</figure>")
	marks := map[string]float64{}
	for _, m := range regexp.MustCompile(`<g transform="translate\(([0-9.]+) [0-9.]+\)"><title>(eevdf|temper), `).FindAllStringSubmatch(frontier, -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		marks[m[2]] = x
	}
	if len(marks) != 2 || marks["eevdf"]-marks["temper"] < 20 {
		t.Errorf("marks at %v, want eevdf's to the right", marks)
	}
	lacks(t, frontier, "right is more CPUs for background", "All marks are at 16 spinners.")
	if strings.Contains(text, "Each path goes") {
		t.Error("one step is no path")
	}
	c = climb(5, "eevdf", "temper")
	lacks(t, plainText(render(t, made(t, c), "paths")), "Each path goes from 4 spinners to 16.")
}

// What the probe counts as inversion is said where it is drawn: a wait for a limit looks like one.
func TestInversionSaysWhatCounts(t *testing.T) {
	const beyond, limit = "only what goes beyond 32 µs counts", "A wait for the CPU limit counts too"
	limited := kinds()["requests"]
	page := plainText(render(t, made(t, limited), "inversion of a limited pod"))
	lacks(t, page, beyond, limit)
	page = plainText(render(t, made(t, climb(5, "eevdf", "temper")), "inversion"))
	lacks(t, page, beyond)
	if strings.Contains(page, limit) {
		t.Error("a limit is spoken of where there is none")
	}
	source, err := os.ReadFile("../../../bpf/probe.bpf.c")
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, string(source), fmt.Sprintf("#define RECLAIM_NS (%dULL * 1000)", reclaim.Microseconds()))
}
