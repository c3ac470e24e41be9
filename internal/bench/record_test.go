// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestRecordsSurviveTheFile(t *testing.T) {
	var file bytes.Buffer
	want := good()
	if err := want.Seal(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := WriteRecord(&file, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadRecords(&file)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got[1])
	if !bytes.Equal(a, b) {
		t.Errorf("wrote %s\nread  %s", a, b)
	}
}

func TestReadRecordsRefuses(t *testing.T) {
	var line bytes.Buffer
	if err := WriteRecord(&line, good()); err != nil {
		t.Fatal(err)
	}
	text := line.String()
	for name, bad := range map[string]string{
		"line 2":              text + "{",
		"schema 1":            strings.Replace(text, `"schema":2`, `"schema":1`, 1),
		"unknown field":       strings.Replace(text, `"seed":`, `"sed":`, 1),
		"its checksum":        strings.Replace(text, `"commit":"`, `"commit":"1`, 1),
		"are stated":          strings.Replace(text, `"p50_ns":`, `"p50_ns":1`, 1),
		"member \"Window\"":   strings.Replace(text, `"seed":`, `"Window":{},"seed":`, 1),
		"\"window\" twice":    strings.Replace(text, `"seed":`, `"window":{},"seed":`, 1),
		"illegal base64 data": strings.Replace(text, `"hdr":"`, `"hdr":"*`, 1),
	} {
		if _, err := ReadRecords(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestDigestIsOfWhatVirtualTimeDetermines(t *testing.T) {
	of := func(change func(*Record)) string {
		r := good()
		change(r)
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		return r.Digest
	}
	want := of(func(*Record) {})
	for name, change := range map[string]func(*Record){
		"campaign": func(r *Record) { r.Campaign = "other" },
		"order":    func(r *Record) { r.Order = 7 },
		"commit":   func(r *Record) { r.Commit = "abc" },
		"host":     func(r *Record) { r.Host.WallSec = 12 },
	} {
		if of(change) != want {
			t.Errorf("%s is in the digest", name)
		}
	}
	for name, change := range map[string]func(*Record){
		"scenario": func(r *Record) { r.Scenario.Load.Keys++ },
		"arm":      func(r *Record) { r.Arm.Again = true },
		"seed":     func(r *Record) { r.Seed++ },
		"build":    func(r *Record) { r.Build.Go = "go2" },
		"machine":  func(r *Record) { r.Machine.Kernel = "7.3" },
		"latency":  func(r *Record) { r.Window.Primary.Latency.Record(1) },
	} {
		if of(change) == want {
			t.Errorf("%s is not in the digest", name)
		}
	}
	if _, err := Digest([]byte(`{"scenario":{}}`)); err == nil {
		t.Error("a line that lacks members has a digest")
	}
}
