// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

func TestRefusesWhatTheLaboratoryDoesNotSay(t *testing.T) {
	for want, args := range map[string][]string{
		"want one command of load":       nil,
		`unknown command "node": one of`: {"node"},
		"want one command":               {"run", "surplus"},
		"read run: EOF":                  {"run"},
		"read load: EOF":                 {"load"},
		"read step: EOF":                 {"standing"},
		"read service: EOF":              {"service"},
		"temper-lab starts this program": {"--help"},
	} {
		if err := execute(t.Context(), args, strings.NewReader(""), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", args, err, want)
		}
	}
}
