// SPDX-License-Identifier: Apache-2.0

package bench

import "testing"

func TestKubeletWeight(t *testing.T) {
	// The fixed points of the map, and one value between them.
	for milli, want := range map[int]int{0: 1, 1: 1, 1000: 100, 2000: 174, 256000: 10000, 1 << 30: 10000} {
		if got := KubeletWeight(milli); got != want {
			t.Errorf("KubeletWeight(%d) = %d, want %d", milli, got, want)
		}
	}
}
