// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

func TestDoc(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "metrics.md")
	if *update {
		if err := os.WriteFile(file, []byte(Doc()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Doc(), string(text)); diff != "" {
		t.Errorf("docs/metrics.md is not what the table gives (-table +file); go test ./internal/metric -update:\n%s", diff)
	}
}

// TestTable keeps to Prometheus' conventions and to what no alert could rely on.
func TestTable(t *testing.T) {
	name := regexp.MustCompile(`^temper_[a-z]+(_[a-z]+)*$`)
	seen := map[string]bool{}
	for id, d := range table {
		counter := strings.HasSuffix(d.Name, "_total")
		switch {
		case !name.MatchString(d.Name):
			t.Errorf("metric %d is called %q", id, d.Name)
		case seen[d.Name]:
			t.Errorf("%s is there twice", d.Name)
		case !strings.HasSuffix(d.Help, "."):
			t.Errorf("%s has the help %q", d.Name, d.Help)
		case counter != (d.Kind == Counter):
			t.Errorf("%s is a %s", d.Name, d.Kind)
		case d.Kind == Histogram && !strings.HasSuffix(d.Name, "_seconds"):
			t.Errorf("%s has no unit", d.Name)
		}
		seen[d.Name] = true
	}
}

func scrape(t *testing.T, samples ...Sample) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(func() []Sample { return samples }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("code %d, %v: %s", w.Code, err, body)
	}
	return string(body)
}

func TestScrape(t *testing.T) {
	d := NewDist([]float64{0.001, 0.01})
	d.Observe(time.Millisecond) // bounds are inclusive
	d.Observe(2 * time.Millisecond)
	d.Observe(time.Second)
	frozen := d.Clone()
	d.Observe(time.Second)
	got := scrape(t,
		SchedulerAttached.Is(Flag(true)),
		TierCPU.Is(1.5, "critical"),
		PodEffective.Counts(frozen),
		LimitPaced.Is(2, "shop\n", "a\"b\xff"),
	)
	for _, want := range []string{
		"# TYPE temper_scheduler_attached gauge\ntemper_scheduler_attached 1\n",
		`temper_tier_cpu_seconds_total{tier="critical"} 1.5` + "\n",
		`temper_pod_effective_seconds_bucket{le="0.001"} 1` + "\n" +
			`temper_pod_effective_seconds_bucket{le="0.01"} 2` + "\n" +
			`temper_pod_effective_seconds_bucket{le="+Inf"} 3` + "\n" +
			"temper_pod_effective_seconds_sum 1.003\n" +
			"temper_pod_effective_seconds_count 3\n",
		`temper_limit_paced_seconds_total{namespace="shop\n",pod="a\"b�"} 2` + "\n",
		"process_resident_memory_bytes ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// TestScrapeOfTooFewLabels is a mistake in the agent: it must be seen.
func TestScrapeOfTooFewLabels(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(func() []Sample { return []Sample{TierCPU.Is(1)} }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code == 200 {
		t.Error("a sample without its label was served")
	}
}
