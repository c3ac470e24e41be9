// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

// Twice the tail of a pod that the stock kernel freezes is nothing to hold anybody to, nor is
// one of waits.
func TestNoObjectiveIsTakenFromAFrozenPod(t *testing.T) {
	for _, kind := range []string{"requests", "postgresql", "starvation"} {
		text := everything(t, made(t, kinds()[kind]))
		for _, claim := range []string{"objective", "broken at"} {
			if strings.Contains(text, claim) {
				t.Errorf("%s: %q is said", kind, claim)
			}
		}
	}
	lacks(t, everything(t, made(t, kinds()["wakeup"])), "objective broken at", "The objective is twice the p99 of eevdf without background.")
}
