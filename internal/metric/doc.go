// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"fmt"
	"strings"
)

// Doc returns the table as docs/metrics.md.
func Doc() string {
	var b strings.Builder
	b.WriteString(`# Metrics

The node agent serves these at ` + "`/metrics`" + `. Times are in seconds. What the probe measures is absent while it does not run, and
what only an attached scheduler has is absent while none is. ` + "`process_*`" + ` of the Prometheus client come with them.

Generated from the table in ` + "`internal/metric/table.go`" + `: ` + "`go test ./internal/metric -update`" + `.

| metric | type | labels | is |
|---|---|---|---|
`)
	for _, d := range table {
		labels := "–"
		if len(d.Labels) > 0 {
			labels = "`" + strings.Join(d.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, labels, d.Help)
	}
	return b.String()
}
