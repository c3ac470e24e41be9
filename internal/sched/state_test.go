// SPDX-License-Identifier: Apache-2.0

package sched

import "testing"

// TestExitSaysWhen: who counts exits tells them by their time.
func TestExitSaysWhen(t *testing.T) {
	if e := describeExit(schedTemperExitInfo{Kind: exitSysRq, AtNs: 7}); e.At != 7 || e.Reason != EjectedSysRq {
		t.Errorf("%+v", e)
	}
}
