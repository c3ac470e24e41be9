// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"
)

// Whoever goes on after "done, but windows are void" must not go on after a failure.
func TestVoidIsNoFailureOnlyAlone(t *testing.T) {
	void, failed := fmt.Errorf("%w: 1 of 4", errVoid), errors.New("write report: disk full")
	for want, errs := range map[bool][]error{
		true:  {void, errors.Join(void, nil), errors.Join(void, void)},
		false: {failed, errors.Join(failed, void), errors.Join(void, errors.Join(failed))},
	} {
		for _, err := range errs {
			if onlyVoid(err) != want {
				t.Errorf("%q: only void windows: %v, want %v", err, !want, want)
			}
		}
	}
}
