// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxCPU is the highest CPU id that any kernel build allows (NR_CPUS is at
// most 8192). It keeps a mistyped "0-99999999" from becoming a huge slice.
const MaxCPU = 8191

// ParseList reads a CPU list as the kernel writes it, "0-3,8,10-11", and
// returns the ids ascending and without repeats. An empty or blank list is
// empty, not an error.
func ParseList(list string) ([]int, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	var ids []int
	for item := range strings.SplitSeq(list, ",") {
		first, last, err := parseRange(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("parse CPU list %q: %w", list, err)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
		// Overlapping ranges must not add up: a short text could repeat
		// "0-8191" until memory ends.
		if len(ids) > MaxCPU {
			ids = sortUnique(ids)
		}
	}
	return sortUnique(ids), nil
}

func parseRange(item string) (first, last int, err error) {
	from, to, isRange := strings.Cut(item, "-")
	if first, err = parseID(from); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return first, first, nil
	}
	if last, err = parseID(to); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("range %q runs backwards", item)
	}
	return first, last, nil
}

func parseID(text string) (int, error) {
	// ParseUint takes no sign, which Atoi would: "+1" and "-1" are not CPUs.
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a CPU number", text)
	}
	if id > MaxCPU {
		return 0, fmt.Errorf("CPU %d is above %d, the highest a kernel can have", id, MaxCPU)
	}
	return int(id), nil
}

func sortUnique(ids []int) []int {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// FormatList is the inverse of ParseList for ascending ids without repeats.
func FormatList(ids []int) string {
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}
