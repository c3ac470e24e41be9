// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// maxOfAKind bounds each number of a shape: more than any machine has.
const maxOfAKind = 999

// Shape is how many CPUs a machine has: sockets, cores per socket, threads per core.
type Shape struct {
	Sockets, Cores, Threads int
}

// ParseShape reads a shape's name, as in "2s4c2t". The spelling is strict, so that
// a name is a key.
func ParseShape(name string) (Shape, error) {
	var s Shape
	rest := name
	for _, f := range []struct {
		unit byte
		n    *int
	}{{'s', &s.Sockets}, {'c', &s.Cores}, {'t', &s.Threads}} {
		digits, after, ok := strings.Cut(rest, string(f.unit))
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 1 || n > maxOfAKind || strconv.Itoa(n) != digits {
			return Shape{}, fmt.Errorf("%q, want sockets, cores per socket and threads per core, as in 1s4c1t", name)
		}
		*f.n, rest = n, after
	}
	if rest != "" {
		return Shape{}, fmt.Errorf("%q: unexpected %q at the end", name, rest)
	}
	return s, nil
}

// CPUs is the number of logical CPUs.
func (s Shape) CPUs() int { return s.Sockets * s.Cores * s.Threads }

// String is the name that ParseShape reads.
func (s Shape) String() string {
	return fmt.Sprintf("%ds%dc%dt", s.Sockets, s.Cores, s.Threads)
}
