// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Table aligns rows under a header.
func Table(header string, fill func(row func(cells ...any))) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	fill(func(cells ...any) {
		format := strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t")
		fmt.Fprintf(w, format+"\n", cells...)
	})
	w.Flush() // a strings.Builder takes everything
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// Count returns "1 core", "2 cores".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Short rounds d to three digits or so: nobody reads the rest.
func Short(d time.Duration) string {
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
