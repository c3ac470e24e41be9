// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"strings"
	"testing"
)

func TestParseArms(t *testing.T) {
	arms, err := ParseArms([]string{"temper", "eevdf", "temper:whole-layer:again", "exec:/opt/a:b/scx_layered:no-probe"})
	if err != nil || len(arms) != 4 || arms[0].Name != "temper" {
		t.Fatalf("got %v, %v", arms, err)
	}
	if a := arms[2]; a.Lend != "whole-layer" || !a.Again || a.Ops != "temper" || a.Name != "temper:whole-layer:again" || a.Base() != "temper" {
		t.Errorf("got %+v", a)
	}
	if a := arms[3]; !a.NoProbe || a.Exec == nil || a.Exec.Path != "/opt/a:b/scx_layered" || a.Name != "exec:scx_layered:no-probe" || !a.Scheduled() || a.Base() != "exec:scx_layered" {
		t.Errorf("got %+v", a)
	}
	for _, a := range Arms() {
		if got, err := ParseArm(a.Name); err != nil || got.flags() != a.flags() || got.Base() != a.Name {
			t.Errorf("%s: %+v, %v", a.Name, got, err)
		}
	}
}

func TestParseArmsRefuses(t *testing.T) {
	for want, bad := range map[string][]string{
		"no arm given":              nil,
		`unknown arm "cfs"`:         {"eevdf", "cfs"},
		"arm eevdf is given twice":  {"eevdf", "temper", "eevdf"},
		"landing fits temper only":  {"eevdf:landing"},
		"again is given twice":      {"eevdf:again:again"},
		"one lending policy":        {"temper:landing:whole-layer"},
		"path of a program":         {"exec:"},
		`unknown arm "temper:fast"`: {"temper:fast"},
	} {
		if _, err := ParseArms(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", bad, err, want)
		}
	}
}

func TestRotateMovesEveryArmThroughEveryPlace(t *testing.T) {
	arms := Arms()
	first := map[string]int{}
	for seed := range 2 * len(arms) {
		order := Rotate(arms, seed)
		first[order[0].Name]++
		for _, a := range arms {
			if !slices.ContainsFunc(order, func(b Arm) bool { return b.Name == a.Name }) {
				t.Fatalf("order %d lacks %s", seed, a.Name)
			}
		}
		if seed%2 == 1 { // ABBA: a pair of seeds is the same list both ways
			before := Rotate(arms, seed-1)
			slices.Reverse(before)
			if before[0].Name != order[0].Name {
				t.Errorf("order %d is not order %d backwards", seed, seed-1)
			}
		}
	}
	for _, a := range arms {
		if first[a.Name] != 2 {
			t.Errorf("%s was first %d times of %d", a.Name, first[a.Name], 2*len(arms))
		}
	}
	if arms[0].Name != "eevdf" || Rotate(nil, 3) != nil {
		t.Error("the list itself was changed")
	}
}
