// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/temper-sched/temper/bench/scenarios"
)

// The campaign that make bench runs has every scenario. A capacity scenario is
// run by hand when the maximum that others refer to is measured anew.
func TestTheCampaignHasEveryScenario(t *testing.T) {
	file := filepath.Join("..", "..", "bench", "campaign.yaml")
	for _, list := range []string{"full", "quick"} {
		l := listed{list: list, out: "x"}
		campaigns, err := l.campaigns(file)
		if err != nil {
			t.Fatal(err)
		}
		all, err := scenarios.All()
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, c := range campaigns {
			has = append(has, c.Scenario.Name)
		}
		for _, s := range all {
			if list == "full" && !slices.Contains(has, s.Name) && !strings.HasSuffix(s.Name, "-capacity") {
				t.Errorf("%s: no entry of list %s runs scenario %s", file, list, s.Name)
			}
		}
	}
}
