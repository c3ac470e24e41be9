// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"
)

// count returns "1 core", "2 cores".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func ascending(ids []int) []int {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}

// short rounds d to three digits or so: nobody reads the rest.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= 10*time.Microsecond:
		return d.Round(time.Microsecond).String()
	}
	return d.String()
}
