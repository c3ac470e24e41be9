// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClosed(t *testing.T) {
	type object = map[string]any
	for name, tc := range map[string]struct{ in, want object }{
		"named fields only": {
			object{"type": "object", "properties": object{"a": object{"type": "string"}}},
			object{"type": "object", "properties": object{"a": object{"type": "string"}}, "additionalProperties": false},
		},
		"free keys stay": {
			object{"type": "object", "additionalProperties": object{"type": "string"}},
			object{"type": "object", "additionalProperties": object{"type": "string"}},
		},
		"within lists": {
			object{"oneOf": []any{object{"type": "object", "properties": object{}}, "x"}},
			object{"oneOf": []any{object{"type": "object", "properties": object{}, "additionalProperties": false}, "x"}},
		},
		"a port by name or number": {
			object{"type": "string", "format": "int-or-string"},
			object{"type": []any{"string", "integer"}},
		},
		"the same in an operator's resource": {
			object{"x-kubernetes-int-or-string": true, "anyOf": []any{object{"type": "integer"}}},
			object{"type": []any{"string", "integer"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, closed(tc.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
