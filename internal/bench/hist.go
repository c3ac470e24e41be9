// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms hold 1 ns to 100 s with three significant digits. One minute of a
// stalled server still fits; what does not is counted as the top.
const (
	histLowest  = 1
	histHighest = int64(100 * time.Second)
	histDigits  = 3
)

// Hist counts durations. Histograms of windows are merged before a percentile
// is read: percentiles themselves are never averaged.
type Hist struct {
	h *hdrhistogram.Histogram
}

// NewHist returns an empty histogram.
func NewHist() *Hist {
	return &Hist{h: hdrhistogram.New(histLowest, histHighest, histDigits)}
}

// Record counts one duration.
func (h *Hist) Record(d time.Duration) {
	v := min(max(int64(d), 0), histHighest)
	if err := h.h.RecordValue(v); err != nil {
		panic(fmt.Sprintf("record %d in a histogram of 0..%d: %v", v, histHighest, err))
	}
}

// RecordN counts one duration n times, as a bucket of another histogram.
func (h *Hist) RecordN(d time.Duration, n int64) {
	v := min(max(int64(d), 0), histHighest)
	if err := h.h.RecordValues(v, n); err != nil {
		panic(fmt.Sprintf("record %d in a histogram of 0..%d: %v", v, histHighest, err))
	}
}

// Merge adds what other counted.
func (h *Hist) Merge(other *Hist) { h.h.Merge(other.h) }

// Count is the number of durations recorded.
func (h *Hist) Count() int64 { return h.h.TotalCount() }

// Quantile returns the duration that a share q, in [0,1], did not exceed. It
// is 0 for an empty histogram.
func (h *Hist) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtQuantile(q * 100))
}

// Max is the longest duration recorded, to three digits.
func (h *Hist) Max() time.Duration { return time.Duration(h.h.Max()) }

// histJSON is how a histogram is kept: the percentiles for readers, the counts
// for everything that computes.
type histJSON struct {
	Count  int64  `json:"count"`
	P50    int64  `json:"p50_ns"`
	P90    int64  `json:"p90_ns"`
	P99    int64  `json:"p99_ns"`
	P999   int64  `json:"p999_ns"`
	Max    int64  `json:"max_ns"`
	Counts string `json:"hdr"` // HdrHistogram V2, compressed, in base64: any HDR tool reads it
}

// MarshalJSON writes percentiles and the encoded counts.
func (h *Hist) MarshalJSON() ([]byte, error) {
	enc, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode histogram: %w", err)
	}
	return json.Marshal(h.summary(string(enc)))
}

func (h *Hist) summary(counts string) histJSON {
	return histJSON{
		Count: h.Count(), P50: int64(h.Quantile(.5)), P90: int64(h.Quantile(.9)), P99: int64(h.Quantile(.99)),
		P999: int64(h.Quantile(.999)), Max: int64(h.Max()), Counts: counts,
	}
}

// UnmarshalJSON reads the counts. Percentiles that do not belong to them make
// it fail: a record is either whole or refused.
func (h *Hist) UnmarshalJSON(data []byte) error {
	var j histJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("decode histogram: %w", err)
	}
	dec, err := hdrhistogram.Decode([]byte(j.Counts))
	if err != nil {
		return fmt.Errorf("decode histogram: %w", err)
	}
	got := Hist{h: dec}
	if is := got.summary(j.Counts); is != j {
		is.Counts, j.Counts = "", ""
		return fmt.Errorf("decode histogram: its counts give %+v, but %+v are stated", is, j)
	}
	h.h = dec
	return nil
}
