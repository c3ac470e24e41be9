// SPDX-License-Identifier: Apache-2.0

package clock

import "context"

// ClockArgs lets tests start a QEMU of their own.
var ClockArgs = clockArgs

// Check runs the self-check with the given clock arguments and says why it
// failed, empty if it passed.
func Check(ctx context.Context, qemu, version string, args []string) (reason string, refused bool, err error) {
	api, err := apiFor(version)
	if err != nil {
		return "", false, err
	}
	b, err := build(ctx, api, version)
	if err != nil {
		return "", false, err
	}
	v, err := check(ctx, qemu, b.firmware, args)
	return v.Reason, v.Unsupported, err
}
