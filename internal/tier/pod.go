// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"fmt"
	"strconv"
)

// Pod is what a pod's tier follows from.
type Pod struct {
	Priority   int32  // spec.priority, as the API server resolved it
	Class      string // spec.priorityClassName, "" if none
	BestEffort bool   // its QoS class
	Annotation string // temper.dev/tier, "" if none
}

// Thresholds are the priorities at which tiers begin.
type Thresholds struct {
	Critical   int32 // from here on critical; system classes are above and standard
	Background int32 // below this, background
}

// DefaultThresholds returns the thresholds of a node whose users set none.
func DefaultThresholds() Thresholds {
	return Thresholds{Critical: 1_000_000, Background: 0}
}

// systemPriority is where Kubernetes' own classes begin, system-cluster-critical
// and system-node-critical. Users cannot define classes as high.
const systemPriority = 2_000_000_000

// quotedAtMost is how many bytes of a text that a user wrote are repeated.
const quotedAtMost = 40

// Of returns the pod's tier, and why in one sentence for a person. The
// annotation may lower the tier that the priority gives; one that would raise
// it, or that names no pod's tier, is ignored.
func Of(p Pod, at Thresholds) (Tier, string) {
	t, why := byPriority(p, at)
	if p.Annotation == "" {
		return t, why
	}
	asked, err := Parse(p.Annotation)
	switch {
	case err != nil || asked == System:
		return t, fmt.Sprintf("%s; annotation temper.dev/tier %s is ignored: it is none of critical, standard, background",
			why, quote(p.Annotation))
	case asked < t:
		return t, fmt.Sprintf("%s; annotation temper.dev/tier %s is ignored: it may only lower the tier", why, quote(p.Annotation))
	case asked > t:
		return asked, fmt.Sprintf("annotation temper.dev/tier lowers it from %s: %s", t, why)
	}
	return t, why
}

func byPriority(p Pod, at Thresholds) (Tier, string) {
	priority := fmt.Sprintf("priority %d", p.Priority)
	if p.Class != "" {
		priority += " of class " + quote(p.Class)
	}
	switch {
	case p.Priority >= systemPriority:
		return Standard, priority + " is Kubernetes' own, which is never critical here"
	case p.Priority >= at.Critical:
		return Critical, fmt.Sprintf("%s is at least %d", priority, at.Critical)
	case p.Priority < at.Background:
		return Background, fmt.Sprintf("%s is below %d", priority, at.Background)
	case p.BestEffort && p.Class == "":
		return Background, "it requests nothing (BestEffort) and has no priority class"
	}
	return Standard, fmt.Sprintf("%s is between %d and %d", priority, at.Background, at.Critical)
}

// quote makes text that a user wrote fit to print: one line of ASCII, bounded.
func quote(text string) string {
	if len(text) <= quotedAtMost {
		return strconv.QuoteToASCII(text)
	}
	return strconv.QuoteToASCII(text[:quotedAtMost]) + "..."
}
