// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"math"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		pod  Pod
		at   Thresholds
		want Tier
		why  string
	}{
		"no priority": {Pod{}, DefaultThresholds(), Standard, "priority 0 is between 0 and 1000000"},
		"at the critical threshold": {
			Pod{Priority: 1_000_000, Class: "gold"},
			DefaultThresholds(), Critical,
			`priority 1000000 of class "gold" is at least 1000000`,
		},
		"just below it": {Pod{Priority: 999_999}, DefaultThresholds(), Standard, "priority 999999 is between 0 and 1000000"},
		"just below the system classes": {
			Pod{Priority: 1_999_999_999}, DefaultThresholds(), Critical, "priority 1999999999 is at least 1000000",
		},
		"system-cluster-critical": {
			Pod{Priority: 2_000_000_000, Class: "system-cluster-critical"},
			DefaultThresholds(), Standard,
			`priority 2000000000 of class "system-cluster-critical" is Kubernetes' own, which is never critical here`,
		},
		"system-node-critical without requests": {
			Pod{Priority: 2_000_001_000, Class: "system-node-critical", BestEffort: true},
			DefaultThresholds(), Standard,
			`priority 2000001000 of class "system-node-critical" is Kubernetes' own, which is never critical here`,
		},
		"the highest there is": {
			Pod{Priority: math.MaxInt32},
			Thresholds{Critical: math.MaxInt32},
			Standard,
			"priority 2147483647 is Kubernetes' own, which is never critical here",
		},
		"below zero":          {Pod{Priority: -1, Class: "batch"}, DefaultThresholds(), Background, `priority -1 of class "batch" is below 0`},
		"the lowest there is": {Pod{Priority: math.MinInt32}, DefaultThresholds(), Background, "priority -2147483648 is below 0"},
		"BestEffort without a class": {
			Pod{BestEffort: true}, DefaultThresholds(), Background, "it requests nothing (BestEffort) and has no priority class",
		},
		"BestEffort with a class": {
			Pod{BestEffort: true, Class: "web"}, DefaultThresholds(), Standard, `priority 0 of class "web" is between 0 and 1000000`,
		},
		"BestEffort and critical": {
			Pod{BestEffort: true, Class: "gold", Priority: 5_000_000},
			DefaultThresholds(), Critical,
			`priority 5000000 of class "gold" is at least 1000000`,
		},
		"other thresholds": {
			Pod{Priority: 100}, Thresholds{Critical: 100, Background: 50}, Critical, "priority 100 is at least 100",
		},
		"below another threshold": {Pod{Priority: 49}, Thresholds{Critical: 100, Background: 50}, Background, "priority 49 is below 50"},
		"lowered to standard": {
			Pod{Priority: 1_000_000, Annotation: "standard"},
			DefaultThresholds(), Standard,
			"annotation temper.dev/tier lowers it from critical: priority 1000000 is at least 1000000",
		},
		"lowered to background": {
			Pod{Annotation: "background"},
			DefaultThresholds(), Background,
			"annotation temper.dev/tier lowers it from standard: priority 0 is between 0 and 1000000",
		},
		"annotated as it is": {Pod{Annotation: "standard"}, DefaultThresholds(), Standard, "priority 0 is between 0 and 1000000"},
		"raised": {
			Pod{Priority: -5, Annotation: "critical"},
			DefaultThresholds(), Background,
			`priority -5 is below 0; annotation temper.dev/tier "critical" is ignored: it may only lower the tier`,
		},
		"raised by a step": {
			Pod{Annotation: "critical"},
			DefaultThresholds(), Standard,
			`priority 0 is between 0 and 1000000; annotation temper.dev/tier "critical" is ignored: it may only lower the tier`,
		},
		"system is no pod's tier, even as a lower one": {
			Pod{Priority: 1_000_000, Annotation: "system"},
			DefaultThresholds(), Critical,
			`priority 1000000 is at least 1000000; annotation temper.dev/tier "system" is ignored: it is none of critical, standard, background`,
		},
		"spelled otherwise": {
			Pod{Annotation: "Background"},
			DefaultThresholds(), Standard,
			`priority 0 is between 0 and 1000000; annotation temper.dev/tier "Background" is ignored: it is none of critical, standard, background`,
		},
		"hostile": {
			Pod{Annotation: "\x1b[2J\n" + strings.Repeat("é", 1<<16)},
			DefaultThresholds(), Standard,
			`priority 0 is between 0 and 1000000; annotation temper.dev/tier "\x1b[2J\n` + strings.Repeat(`\u00e9`, 17) +
				`\xc3"... is ignored: it is none of critical, standard, background`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := Of(c.pod, c.at)
			if got != c.want || why != c.why {
				t.Errorf("%s, %s\nwant %s, %s", got, why, c.want, c.why)
			}
		})
	}
}

// No annotation raises a pod, makes it system or gets into a terminal as it is.
func FuzzAnnotation(f *testing.F) {
	for _, text := range []string{"", "critical", "system", "standard", "background", "critical ", "\x00\x1b", "\xff", strings.Repeat("a", 300)} {
		f.Add(int32(0), "", false, text)
		f.Add(int32(1_000_000), "gold", false, text)
		f.Add(int32(-1), text, true, text)
		f.Add(int32(2_000_000_000), "system-node-critical", true, text)
	}
	f.Fuzz(func(t *testing.T, priority int32, class string, bestEffort bool, annotation string) {
		pod := Pod{Priority: priority, Class: class, BestEffort: bestEffort}
		without, _ := Of(pod, DefaultThresholds())
		pod.Annotation = annotation
		got, why := Of(pod, DefaultThresholds())
		if got < without || got == System {
			t.Errorf("%q made %s of %s", annotation, got, without)
		}
		if asked, err := Parse(annotation); (err != nil || asked == System) && got != without {
			t.Errorf("%q, which is no pod's tier, made %s of %s", annotation, got, without)
		}
		if len(why) > 1000 || strings.ContainsFunc(why, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("not fit to print: %q", why)
		}
	})
}
