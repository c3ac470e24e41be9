// SPDX-License-Identifier: Apache-2.0

// Package clock gives each vCPU of a QEMU guest a clock of its own.
//
// Under QEMU's instruction counting all vCPUs share one clock: with k busy
// vCPUs each runs at 1/k of its speed, so latencies at different densities
// cannot be compared. The plugin in plugin/clock.c counts for each vCPU apart.
// This package compiles it with the host's C compiler for the QEMU at hand, and
// hands it out only after a small guest of two vCPUs (selfcheck/) has measured
// with it what can be computed, twice and with the same bytes.
//
// # Limits
//
// Two busy vCPUs may disagree about the time by up to [Quantum]: what one sends
// the other through memory or an interrupt may seem to arrive that much early or
// late. The one with the lower number is ahead, so the error has a direction
// that depends on the pair. A halted vCPU is woken at exactly the waker's time.
// Timers are exact. README.md shows what other quanta do.
//
// One instruction takes one nanosecond. There are no caches, no SMT or NUMA
// costs, no sleep states and no frequency changes. PAUSE costs 100 ns.
//
// The kernel's own check of the time-stamp counters sees the disagreement: boot
// with tsc=reliable. A display or any other device with timers in host time ends
// slices at random moments and with it the reproducibility: use -nodefaults.
// Snapshots are not supported.
//
// The package starts QEMU for the self-check only.
package clock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Quantum is how far apart the clocks of two busy vCPUs may be. It must be the
// plugin's own default.
const Quantum = 500 * time.Nanosecond

// Why there is no plugin. A caller falls back to plain instruction counting and
// says so.
var (
	// ErrNoCompiler means that the host cannot compile C.
	ErrNoCompiler = errors.New("no C compiler")
	// ErrUnsupported means that this QEMU does not load the plugin, or that
	// the plugin did not recognise this QEMU.
	ErrUnsupported = errors.New("QEMU not supported")
	// ErrSelfCheck means that the plugin ran and measured a wrong answer.
	ErrSelfCheck = errors.New("self-check failed")
)

// Plugin returns the path of the plugin for the QEMU at qemuPath. It is given to
// the option -plugin, together with -accel tcg,thread=single and -icount
// shift=0,sleep=off. The version is what that QEMU reports: "10.0.2", or the
// first line of its --version.
//
// Building and checking take a few seconds, once for each QEMU; results are
// kept in the user's cache directory.
func Plugin(ctx context.Context, qemuPath, version string) (string, error) {
	b, _, err := checked(ctx, qemuPath, version)
	return b.plugin, err
}

// Tracer returns the path of a plugin that is the same clock, and writes which
// functions of the guest's kernel run: its first option is trace=FILE
// (plugin/trace.c). The guest does not notice. For QEMU before 11.1.
func Tracer(ctx context.Context, qemuPath, version string) (string, error) {
	b, api, err := checked(ctx, qemuPath, version)
	if err != nil {
		return "", err
	}
	if api > newestTraced {
		return "", fmt.Errorf("trace under QEMU %s, 11.0 is the newest that can be: %w", version, ErrUnsupported)
	}
	if exists(b.tracer) {
		return b.tracer, nil
	}
	return b.tracer, b.compileTracer(ctx, api)
}

// newestTraced is the last version of the plugin API that plugin/trace.c is
// written for.
const newestTraced = 4

// checked is what was built for a QEMU and measured right with it.
func checked(ctx context.Context, qemuPath, version string) (built, int, error) {
	api, err := apiFor(version)
	if err != nil {
		return built{}, 0, err
	}
	b, err := build(ctx, api, version)
	if err != nil {
		return built{}, 0, err
	}
	v, err := b.verdict(ctx, qemuPath)
	if err != nil {
		return built{}, 0, err
	}
	if err := v.err(); err != nil {
		return built{}, 0, err
	}
	return b, api, nil
}
