// SPDX-License-Identifier: Apache-2.0

package stats

import "math"

// tail is the share of resamples beyond each end of an interval over n seeds.
//
// The plain 2.5 % would be too little with few seeds: the spread of a resample
// is that of n-1 draws, and eight of them do not know their own spread well.
// Both are put right as Student's t does it for a mean (Hesterberg 2015, "What
// teachers should know about the bootstrap", section 5.3): the share is that of
// the normal distribution beyond √(n/(n-1)) times Student's quantile.
func tail(n int) float64 {
	beyond := (1 - confidence) / 2
	wide := math.Sqrt(float64(n)/float64(n-1)) * studentQuantile(1-beyond, n-1)
	return 0.5 * math.Erfc(wide/math.Sqrt2)
}

// studentQuantile inverts Student's distribution by bisection: its tail falls
// with t, and a thousand is beyond every quantile asked for here.
func studentQuantile(p float64, freedom int) float64 {
	low, high := 0.0, 1000.0
	for range 60 {
		if mid := (low + high) / 2; studentUpTo(mid, freedom) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// studentUpTo is Student's distribution function for t ≥ 0 and whole degrees of
// freedom, which has a closed form (Abramowitz and Stegun 26.7.3 and 26.7.4).
func studentUpTo(t float64, freedom int) float64 {
	theta := math.Atan(t / math.Sqrt(float64(freedom)))
	sin, cos := math.Sin(theta), math.Cos(theta)
	within := 0.0
	if freedom%2 == 0 {
		term := sin
		for k := 1; k <= freedom/2; k++ {
			within += term
			term *= cos * cos * float64(2*k-1) / float64(2*k)
		}
		return 0.5 + within/2
	}
	term := sin * cos
	for k := 1; k <= (freedom-1)/2; k++ {
		within += term
		term *= cos * cos * float64(2*k) / float64(2*k+1)
	}
	return 0.5 + (theta+within)/math.Pi
}
