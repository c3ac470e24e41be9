// SPDX-License-Identifier: Apache-2.0

package stats

import "math"

// rare is the share of campaigns in which chance does more than ByChance allows.
const rare = 0.01

// ByChance is how many of n intervals may leave out the truth: as many as chance does
// in all but rare campaigns, were each drawn by itself. Never all of them, or a single
// interval would show nothing.
func ByChance(n int) int {
	miss := 1 - confidence
	exactly := math.Pow(confidence, float64(n)) // the chance that k of them do
	upTo := exactly
	k := 0
	for ; k < n-1 && upTo < 1-rare; k++ {
		exactly *= float64(n-k) / float64(k+1) * miss / confidence
		upTo += exactly
	}
	return k
}
