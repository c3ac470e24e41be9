// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/invented"
)

// starving is a node that critical work saturates: under ours it gets all but what lower
// tiers are owed, and a background thread waits less.
func starving(seeds int, arms ...string) invented.Campaign {
	c := kinds()["starvation"]
	c.Seeds, c.Arms = seeds, arms
	c.Shape = func(arm string, seed uint64, step bench.Step) invented.Shape {
		s := invented.Typical(arm, seed, step)
		critical, standard, background := 360.0, 120.0, 1.2 // milliseconds of 120
		if arm == "temper" {
			critical, standard, background = 468.0, 6.0, 4.8
		}
		for _, p := range []struct {
			tier string
			ms   float64
		}{{"critical", critical}, {"standard", standard}, {"background", background}} {
			s.Pods = append(s.Pods, bench.Pod{Name: p.tier, Tier: p.tier, Weight: 1, Threads: 1, CPUTime: time.Duration(p.ms * float64(time.Millisecond))})
		}
		return s
	}
	c.Spoil = func(rec *bench.Record) {
		waits := map[string]time.Duration{"critical": 12, "system": 2, "standard": 3, "background": 2600}
		if rec.Arm.Name == "temper" {
			waits = map[string]time.Duration{"critical": 12, "system": 350, "standard": 150, "background": 370}
		}
		for tier, ms := range waits {
			probe := rec.Window.Probe.Tiers[tier]
			probe.WorstWait = ms * time.Millisecond
			rec.Window.Probe.Tiers[tier] = probe
		}
	}
	return c
}

// What critical work takes from lower tiers is said as what it leaves them.
func TestStarvationIsToldByTier(t *testing.T) {
	headline := func(c invented.Campaign) string { return plainText(made(t, c).Sections[0].Headline()...) }
	const waits = "The longest that any thread was runnable and did not run is 2.60 s under eevdf and 370 ms under temper."
	text := headline(starving(5, "eevdf", "temper"))
	lacks(t, text,
		"What temper loses against eevdf beside 4 background spinners: tier system waits for up to 350 ms, not 2.00 ms; tier standard gets 0.05 (0.05–0.05) CPUs, not 1.00 (1.00–1.00) and waits for up to 150 ms, not 3.00 ms.",
		"What temper wins against eevdf beside 4 background spinners: tier critical gets 3.90 (3.90–3.90) CPUs, not 3.00 (3.00–3.00); tier background gets 0.04 (0.04–0.04) CPUs, not 0.01 (0.01–0.01) and waits for up to 370 ms, not 2.60 s.",
		waits)
	if strings.Index(text, "What temper loses") != 0 {
		t.Errorf("what is lost is not said first: %s", text)
	}
	lacks(t, headline(starving(4, "eevdf", "temper")), "What temper loses against eevdf beside 4 background spinners, of 4 seeds, too few to tell: ", "What temper wins against eevdf beside 4 background spinners, of 4 seeds, too few to tell: ")
	lacks(t, headline(starving(5, "eevdf", "eevdf-tuned", "temper")), "What temper loses against eevdf beside", "What temper loses against eevdf-tuned beside")
	lacks(t, headline(starving(5, "temper")), "no two arms to hold against each other", "did not run is 370 ms under temper")

	same := starving(5, "eevdf", "temper")
	same.Shape, same.Spoil = kinds()["starvation"].Shape, nil
	lacks(t, headline(same), "What temper loses against eevdf beside 4 background spinners: nothing that a tier's figures show.", "What temper wins against eevdf beside 4 background spinners: nothing that")

	void := starving(5, "eevdf", "temper")
	spoil := void.Spoil
	void.Spoil = func(rec *bench.Record) {
		if spoil(rec); rec.Arm.Name == "eevdf" {
			rec.Window.Primary.Wrong = 1
		}
	}
	lacks(t, headline(void), "No figure for eevdf at 4 spinners: its windows there are void")
}
