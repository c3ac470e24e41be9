// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves what read returns for each scrape, and the process's own
// memory and CPU time.
func Handler(read func() []Sample) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(newCollector(read), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

type collector struct {
	descs [count]*prometheus.Desc
	read  func() []Sample
}

func newCollector(read func() []Sample) *collector {
	c := &collector{read: read}
	for id, d := range table {
		c.descs[id] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
	}
	return c
}

// Describe is called once, by the registry.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect is called for each scrape.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.read() {
		out <- c.metric(s)
	}
}

func (c *collector) metric(s Sample) prometheus.Metric {
	labels := make([]string, len(s.Labels))
	for i, l := range s.Labels {
		labels[i] = strings.ToValidUTF8(l, "�")
	}
	m, err := c.convert(s, labels)
	if err != nil {
		return prometheus.NewInvalidMetric(c.descs[s.ID], fmt.Errorf("convert %s: %w", table[s.ID].Name, err))
	}
	return m
}

func (c *collector) convert(s Sample, labels []string) (prometheus.Metric, error) {
	desc := c.descs[s.ID]
	switch table[s.ID].Kind {
	case Histogram:
		n, buckets := s.Dist.cumulative()
		return prometheus.NewConstHistogram(desc, n, s.Dist.sum, buckets, labels...)
	case Counter:
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, labels...)
	}
	return prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, labels...)
}
