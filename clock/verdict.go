// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// checkTimeout bounds one run of the self-check. It takes 0.1 s with the plugin
// on an idle host.
const checkTimeout = 60 * time.Second

// checkDone is QEMU's exit status when the firmware ended the machine: it
// writes 42, the exit device makes 2·42+1 of it. QEMU's own failures are 1.
const checkDone = 85

// slack is for the instructions between taking a time stamp and using it.
const slack = 64

// answer is what the firmware must have measured, in nanoseconds.
type answer struct {
	name     string
	min, max int64
}

// knownAnswers follow from selfcheck/check.c: a loop of a million rounds is two
// million instructions whoever else is busy, a thousand PAUSEs cost 100 ns each
// beside three instructions, halted vCPUs wake on time, and two busy ones
// disagree by a quantum at most.
func knownAnswers() []answer {
	const loop, pauses = 2_000_000, 1000 * 103
	quantum := Quantum.Nanoseconds() + slack
	return []answer{
		{"alone_ns", loop, loop + slack},
		{"beside_busy_ns", loop, loop + slack},
		{"second_ns", loop, loop + slack},
		{"beside_halted_ns", loop, loop + slack},
		{"pauses_ns", pauses, pauses + slack},
		{"to_second_min_ns", -quantum, quantum},
		{"to_second_max_ns", -quantum, quantum},
		{"to_first_min_ns", -quantum, quantum},
		{"to_first_max_ns", -quantum, quantum},
		{"timer_late_min_ns", 0, slack},
		{"timer_late_max_ns", 0, slack},
		{"wake_halted_min_ns", 0, slack},
		{"wake_halted_max_ns", 0, slack},
		{"interrupt_busy_min_ns", -quantum, quantum},
		{"interrupt_busy_max_ns", -quantum, quantum},
	}
}

// verdict is a finished self-check of one plugin in one QEMU, as cached.
type verdict struct {
	Passed      bool   `json:"passed"`
	Unsupported bool   `json:"unsupported"`
	Reason      string `json:"reason"`
	QEMU        string `json:"qemu"`
	Output      string `json:"output"`
}

func (v verdict) err() error {
	switch {
	case v.Passed:
		return nil
	case v.Unsupported:
		return fmt.Errorf("check clock plugin in %s: %w: %s", v.QEMU, ErrUnsupported, v.Reason)
	default:
		return fmt.Errorf("check clock plugin in %s: %w: %s", v.QEMU, ErrSelfCheck, v.Reason)
	}
}

// verdict returns the cached verdict for this QEMU binary or runs the check.
func (b built) verdict(ctx context.Context, qemuPath string) (verdict, error) {
	key, err := fileKey(qemuPath)
	if err != nil {
		return verdict{}, err
	}
	path := filepath.Join(b.dir, "verdict-"+key+".json")
	var v verdict
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &v) == nil {
		return v, nil
	}
	v, err = check(ctx, qemuPath, b.firmware, clockArgs(b.plugin))
	if err != nil {
		return verdict{}, fmt.Errorf("check clock plugin in %s: %w", qemuPath, err)
	}
	if v.Unsupported && !strings.HasPrefix(v.Reason, saidByPlugin) {
		return v, nil // it may do another time, with more memory
	}
	return v, writeVerdict(path, v)
}

func writeVerdict(path string, v verdict) error {
	text, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return fmt.Errorf("encode verdict: %w", err)
	}
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(part, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write verdict: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("write verdict: %w", err)
	}
	return nil
}

// fileKey hashes the file that starts QEMU. Should that be a wrapper, the
// version in the directory's key tells what it starts.
func fileKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hash QEMU: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hash QEMU %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// clockArgs is the clock part of QEMU's command line.
func clockArgs(plugin string) []string {
	return []string{
		"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off",
		"-plugin", plugin,
	}
}

// check runs the firmware twice at the same time, so that a clock that depends
// on the host's load has a chance to show it, and compares bytes and answers.
func check(ctx context.Context, qemuPath, firmware string, args []string) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var outputs [2]string
	var errs [2]error
	var wg sync.WaitGroup
	for i := range outputs {
		wg.Go(func() { outputs[i], errs[i] = runFirmware(ctx, qemuPath, firmware, args) })
	}
	wg.Wait()

	v := verdict{QEMU: qemuPath, Output: outputs[0]}
	var refused *refusedError
	switch err := errors.Join(errs[:]...); {
	case errors.As(err, &refused):
		v.Unsupported, v.Reason = true, refused.line
	case err != nil:
		return verdict{}, err
	case outputs[0] != outputs[1]:
		v.Reason = "two runs differ: " + firstDifference(outputs[0], outputs[1])
	default:
		v.Reason = wrongAnswer(outputs[0])
		v.Passed = v.Reason == ""
	}
	return v, nil
}

// refusedError is a QEMU that ended before the firmware did.
type refusedError struct {
	line string
}

func (e *refusedError) Error() string { return "QEMU refused: " + e.line }

func runFirmware(ctx context.Context, qemuPath, firmware string, args []string) (string, error) {
	args = append(args,
		"-nodefaults", "-no-user-config", "-display", "none",
		"-M", "pc", "-cpu", "max,-monitor", "-smp", "2", "-m", "4",
		"-rtc", "base=2026-01-01,clock=vm", "-seed", "1", "-bios", firmware,
		"-chardev", "stdio,id=console", "-device", "isa-debugcon,iobase=0xe9,chardev=console",
		"-device", "isa-debug-exit,iobase=0x501,iosize=4")
	cmd := exec.CommandContext(ctx, qemuPath, args...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("run self-check: %w", ctx.Err())
	case errors.As(err, &exit) && exit.ExitCode() == checkDone:
		return out.String(), nil
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		return "", fmt.Errorf("run self-check: %w", err) // a signal: the host's doing
	case errors.As(err, &exit):
		return "", &refusedError{line: reasonIn(diag.String(), exit)}
	case err != nil:
		return "", fmt.Errorf("run self-check: %w", err)
	default:
		return "", &refusedError{line: "ended without an answer"}
	}
}

// saidByPlugin begins what the plugin itself says.
const saidByPlugin = "clock: "

// reasonIn picks the plugin's own line from what QEMU printed, else the last.
func reasonIn(diag string, exit *exec.ExitError) string {
	reason := exit.Error()
	for line := range strings.Lines(diag) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, saidByPlugin) {
			return line
		}
		if line != "" {
			reason = line
		}
	}
	return reason
}

// wrongAnswer names the first value that is not what it must be.
func wrongAnswer(output string) string {
	got := map[string]int64{}
	for line := range strings.Lines(output) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Sprintf("line %q is not an answer", strings.TrimSpace(line))
		}
		got[name] = n
	}
	for _, a := range knownAnswers() {
		n, ok := got[a.name]
		if !ok {
			return a.name + " is missing"
		}
		if n < a.min || n > a.max {
			return fmt.Sprintf("%s is %d, want %d to %d", a.name, n, a.min, a.max)
		}
	}
	if _, ok := got["digest"]; !ok {
		return "digest is missing"
	}
	return ""
}

func firstDifference(a, b string) string {
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(left), len(right)) {
		if left[i] != right[i] {
			return fmt.Sprintf("%q and %q", left[i], right[i])
		}
	}
	return "one is longer"
}
