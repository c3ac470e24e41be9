// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ladderFile is a scenario that has everything.
const ladderFile = `
name: ladder
title: memcached beside spinners
measures: request latency
topology: 1s4c1t
instrument: true
primary: {kind: memcached, threads: 2, request_millicpu: 2000}
load: {arrivals: poisson, conns: 8, keys: 1000, value_bytes: 100, set_every: 10, warmup: 200ms, window: 2s, pad: 20ms}
max_rate: 20000
points:
  - {name: idle, rate: 500}
  - {name: half, share: 0.5}
densities: [0, 1, 2, 4, 0]
arms: [eevdf, temper]
seeds: 8
`

func ladder() Scenario {
	s, err := ParseScenario("ladder.yaml", []byte(ladderFile))
	if err != nil {
		panic(err)
	}
	return s
}

func TestStepsAreEveryDensityAtEveryPoint(t *testing.T) {
	s := ladder()
	steps := s.Steps()
	if len(steps) != 10 || steps[4] != (Step{Index: 4, Point: "idle", Rate: 500}) || steps[8] != (Step{Index: 8, Density: 4, Point: "half", Rate: 10_000}) {
		t.Errorf("steps %+v", steps)
	}
	s.Points = nil
	if steps := s.Steps(); len(steps) != 5 || steps[3] != (Step{Index: 3, Density: 4}) {
		t.Errorf("steps without points %+v", steps)
	}
	if s.Load.Window != 2*time.Second || s.Load.Counted() != 2040*time.Millisecond || s.Load.Total() != 2260*time.Millisecond {
		t.Errorf("load %+v", s.Load)
	}
}

func TestParseScenarioNamesFileAndField(t *testing.T) {
	change := func(old, new string) string {
		if !strings.Contains(ladderFile, old) {
			t.Fatalf("no %q to change", old)
		}
		return strings.Replace(ladderFile, old, new, 1)
	}
	for want, text := range map[string]string{
		"field densitys not found":                       change("densities:", "densitys:"),
		"line 7":                                         change("threads: 2,", "threads: 2, thread: 3,"),
		"densities: no step in the ladder":               change("[0, 1, 2, 4, 0]", "[]"),
		"peers.request_millicpu: -1 is negative":         change("densities:", "peers: {request_millicpu: -1}\ndensities:"),
		`background[1]: "forks" is none of fork, switch`: change("densities:", "background: [fork, forks]\ndensities:"),
		"densities: -1, want 0 to 256":                   change("[0, 1, 2, 4, 0]", "[0, -1]"),
		"densities: 100000, want 0 to 256":               change("[0, 1, 2, 4, 0]", "[0, 100000]"),
		"line 13: densities: 1.5, want whole numbers":    change("[0, 1, 2, 4, 0]", "[0, 1.5]"),
		`topology: "9z", want sockets, cores`:            change("1s4c1t", "9z"),
		"topology: 1s1c1t is one CPU, want at least 2":   change("1s4c1t", "1s1c1t"),
		"load.keys: 0, want 1 to 1000000":                change("keys: 1000", "keys: 0"),
		"load.value_bytes: -4000, want 1 to 1048576":     change("value_bytes: 100", "value_bytes: -4000"),
		"load.value_bytes: 0, want 1 to 1048576":         change("value_bytes: 100", "value_bytes: 0"),
		"load.set_every: -1, want 0 or more":             change("set_every: 10", "set_every: -1"),
		"points[0].rate: NaN, want 0 to 1000000":         change("rate: 500", "rate: .nan"),
		"points[0].rate: +Inf, want 0 to 1000000":        change("rate: 500", "rate: .inf"),
		"points[1].share: 30, want at most 1":            change("share: 0.5", "share: 30"),
		"max_rate: NaN, want 0 to 1000000":               change("max_rate: 20000", "max_rate: .nan"),
		"primary.params.burst_us: NaN, want a number":    change("kind: memcached, threads: 2", "kind: burst, params: {burst_us: .nan}, threads: 2"),
		"primary.kind: \"mysql\" is none of memcached":   change("kind: memcached", "kind: mysql"),
		"primary.threads: 0":                             change("threads: 2", "threads: 0"),
		"primary.params: [burst_us], but memcached has":  change("threads: 2", "threads: 2, params: {burst_us: 1}"),
		"load.conns: 1 connections cannot feed":          change("conns: 8", "conns: 1"),
		"load.arrivals: \"uniform\"":                     change("arrivals: poisson", "arrivals: uniform"),
		"load.window: 0s, want at least 10ms":            change("window: 2s", "window: 0s"),
		"load.window: 1ns, want at least 10ms":           change("window: 2s", "window: 1ns"),
		"points[1].share: is of max_rate":                change("max_rate: 20000\n", ""),
		"points[0]: give either a rate or a share":       change("rate: 500", "rate: 0"),
		"points[1].name: \"idle\" is empty or given":     change("name: half", "name: idle"),
		"instrument: false, but memcached is driven":     change("instrument: true", "instrument: false"),
		"measures: missing":                              change("measures: request latency\n", ""),
		"arms: unknown arm \"cfs\"":                      change("[eevdf, temper]", "[cfs]"),
		"seeds: 0, want at least 1":                      change("seeds: 8", "seeds: 0"),
		"more than one document":                         ladderFile + "---\nname: two\n",
	} {
		_, err := ParseScenario("ladder.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ladder.yaml") {
			t.Errorf("want %q, got error %v", want, err)
		}
	}
}

// What is on record can be asked for again: a bound that it is outside of is wrong.
func TestScenariosOnRecordAreValid(t *testing.T) {
	files, err := filepath.Glob("../../bench/records/*/" + RecordFile)
	if err != nil || len(files) == 0 {
		t.Fatalf("no records: %v", err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var record struct{ Scenario json.RawMessage }
			if err := json.Unmarshal(line, &record); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if seen[string(record.Scenario)] {
				continue
			}
			seen[string(record.Scenario)] = true
			var s Scenario
			if err := json.Unmarshal(record.Scenario, &s); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if err := s.Validate(); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func TestBackgroundPodsTakeTurns(t *testing.T) {
	s := ladder()
	if s.BatchAt(1) != nil || s.Neighbour() != "spinner" || !slices.Equal(s.Packages(), []string{"memcached"}) {
		t.Errorf("without batches the first pod has %+v, a pod is a %q, packages are %v", s.BatchAt(1), s.Neighbour(), s.Packages())
	}
	s.Background = []string{"fork", "socket"}
	for n, want := range map[int]string{1: "fork", 2: "socket", 3: "fork"} {
		if got := s.BatchAt(n); got == nil || got.Name != want {
			t.Errorf("pod %d has %+v, want %s", n, got, want)
		}
	}
	if s.Neighbour() != "batch pod" || !slices.Equal(s.Packages(), []string{"memcached", "stress-ng"}) {
		t.Errorf("a pod is a %q, packages are %v", s.Neighbour(), s.Packages())
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	s := ladder()
	s.Densities, s.Load.Window, s.Title = nil, 0, ""
	err := s.Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v, want three faults", err)
	}
	if !slices.IsSorted(strings.Split(err.Error(), "\n")) {
		t.Errorf("not in order: %v", err)
	}
}
