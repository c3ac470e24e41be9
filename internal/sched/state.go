// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's enum scx_exit_kind.
const (
	exitNone       = 0
	exitUnreg      = 64 // from user space
	exitUnregBPF   = 65 // by scx_bpf_exit
	exitSysRq      = 67
	exitErrorStall = 1026
)

// control is struct control of bpf/control.bpf.h.
type control struct {
	Timer       [16]byte
	HeartbeatAt uint64
	DeadManNs   uint64
	Live        uint64
}

// IsOurs tells Temper's name in root/ops, to which the kernel may append a suffix.
func IsOurs(ops string) bool { return ops == Name || strings.HasPrefix(ops, Name+"_") }

// readSysfs reads what the kernel says about sched_ext.
func readSysfs() (State, error) {
	var s State
	state, err := os.ReadFile(filepath.Join(schedExtDir, "state"))
	if err != nil {
		return s, fmt.Errorf("read sched_ext state: %w", err)
	}
	s.Kernel = strings.TrimSpace(string(state))
	// root/ops exists only while a scheduler is loaded.
	if ops, err := os.ReadFile(filepath.Join(schedExtDir, "root", "ops")); err == nil {
		s.Ops = strings.TrimSpace(string(ops))
	}
	if seq, err := os.ReadFile(filepath.Join(schedExtDir, "enable_seq")); err == nil {
		s.EnableSeq, _ = strconv.ParseUint(strings.TrimSpace(string(seq)), 10, 64)
	}
	return s, nil
}

// ReadState returns what schedules this node, whether Temper is attached or not.
func ReadState(pinDir string) (State, error) {
	s, err := Open(pinDir)
	if errors.Is(err, ErrNotAttached) {
		state, err := readSysfs()
		if errors.Is(err, os.ErrNotExist) {
			return State{}, nil
		}
		return state, err
	}
	if err != nil {
		return State{}, err
	}
	defer s.Close()
	return s.State()
}

// State returns what schedules this node now, and how Temper's last attach
// ended if it did.
func (s *Scheduler) State() (State, error) {
	state, err := readSysfs()
	if err != nil {
		return state, err
	}
	if err := s.check(); err != nil {
		return state, err
	}
	state.Attached = state.Kernel == "enabled" && IsOurs(state.Ops)
	if state.Generation, err = s.plans.current(); err != nil {
		return state, err
	}
	var c control
	if err := s.maps["controls"].Lookup(uint32(0), &c); err != nil {
		return state, fmt.Errorf("read heartbeat: %w", err)
	}
	state.HeartbeatAge = max(0, monotonic()-time.Duration(c.HeartbeatAt))
	state.DeadMan = time.Duration(c.DeadManNs)
	var info schedTemperExitInfo
	if err := s.maps["exits"].Lookup(uint32(0), &info); err != nil {
		return state, fmt.Errorf("read exit: %w", err)
	}
	if info.Kind != exitNone {
		state.Exit = describeExit(info)
		state.Attached = false
	}
	return state, nil
}

// describeExit puts the kernel's exit into the closed list of reasons.
func describeExit(info schedTemperExitInfo) *Exit {
	e := &Exit{Kind: info.Kind, Code: info.Code, At: time.Duration(info.AtNs)}
	reason, message := cString(info.Reason[:]), cString(info.Message[:])
	e.Message = reason
	if message != "" {
		e.Message += ": " + message
	}
	switch {
	case info.Kind == exitUnregBPF && info.Code == int64(schedTemperExitCodeTEMPER_EXIT_STALE):
		e.Reason = AgentStale
	case info.Kind == exitSysRq:
		e.Reason = EjectedSysRq
	case info.Kind == exitErrorStall:
		e.Reason = EjectedStall
	case info.Kind == exitUnreg:
		e.Reason = Stopped
	default:
		e.Reason = EjectedError
	}
	return e
}

func cString(b []int8) string {
	text := make([]byte, 0, len(b))
	for _, c := range b {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}

// monotonic reads CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
