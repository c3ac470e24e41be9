// SPDX-License-Identifier: Apache-2.0

// Package scenarios holds the scenario files and hands them out, parsed. They
// are part of the program, so that a binary needs no checkout to run them.
package scenarios

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
)

//go:embed *.yaml
var files embed.FS

// All returns every scenario, by name.
func All() ([]bench.Scenario, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list scenarios: %w", err)
	}
	var out []bench.Scenario
	for _, e := range entries {
		s, err := read(e.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b bench.Scenario) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Find returns the scenario called name.
func Find(name string) (bench.Scenario, error) {
	all, err := All()
	if err != nil {
		return bench.Scenario{}, err
	}
	var known []string
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		known = append(known, s.Name)
	}
	return bench.Scenario{}, fmt.Errorf("unknown scenario %q: one of %s", name, strings.Join(known, ", "))
}

// read parses one file, which is named for its scenario.
func read(file string) (bench.Scenario, error) {
	data, err := files.ReadFile(file)
	if err != nil {
		return bench.Scenario{}, fmt.Errorf("read scenario %s: %w", file, err)
	}
	s, err := bench.ParseScenario(file, data)
	if err == nil && s.Name+".yaml" != file {
		err = fmt.Errorf("read scenario %s: name: %q is not the file's", file, s.Name)
	}
	return s, err
}
