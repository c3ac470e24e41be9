// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"errors"
)

// ClockArgs lets tests start a QEMU of their own.
var ClockArgs = clockArgs

// Check runs the self-check with the given clock arguments and says why it
// failed, empty if it passed.
func Check(ctx context.Context, qemu, version string, args []string) (reason string, refused bool, err error) {
	v, err := selfCheck(ctx, qemu, version, args)
	return v.Reason, v.Unsupported, err
}

// Answers runs the self-check with the given clock arguments and returns what the
// firmware measured.
func Answers(ctx context.Context, qemu, version string, args []string) (string, error) {
	v, err := selfCheck(ctx, qemu, version, args)
	if err == nil && !v.Passed {
		err = errors.New(v.Reason)
	}
	return v.Output, err
}

func selfCheck(ctx context.Context, qemu, version string, args []string) (verdict, error) {
	api, err := apiFor(version)
	if err != nil {
		return verdict{}, err
	}
	b, err := build(ctx, api, version)
	if err != nil {
		return verdict{}, err
	}
	return check(ctx, qemu, b.firmware, args)
}

// BuildPlugin compiles another plugin for that QEMU, or the same with other flags.
func BuildPlugin(ctx context.Context, version, source, out string, flags ...string) error {
	api, err := apiFor(version)
	if err != nil {
		return err
	}
	args := pluginArgs(api, "clock")
	args[len(args)-2], args[len(args)-1] = out, source
	return runIn(ctx, ".", append(args, flags...))
}
