// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

func ascending(ids []int) []int {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}
