// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

func TestAttachDetach(t *testing.T) {
	requireGuest(t)
	s := attach(t, Config{DeadMan: 30 * time.Second})
	state, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	if !state.Attached || state.Ops != Name {
		t.Fatalf("state after attach = %+v", state)
	}
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	state, err = ReadState("")
	if err != nil {
		t.Fatal(err)
	}
	if state.Attached || state.Kernel != "disabled" {
		t.Fatalf("state after detach = %+v", state)
	}
}

// attach makes Temper the guest's scheduler until the test ends.
func attach(t *testing.T, cfg Config) *Scheduler {
	t.Helper()
	cfg.CPUs = readTopology(t)
	s, err := Attach(t.Context(), cfg)
	if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		t.Fatalf("attach: %v\n%s", err, strings.Join(verifier.Log[max(0, len(verifier.Log)-40):], "\n"))
	}
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(func() { _ = s.Detach() })
	return s
}
