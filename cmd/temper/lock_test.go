// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/agent"
)

func TestHoldNodeOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := holdNode(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = holdNode(dir)
	f, ok := errors.AsType[*failure](err)
	if !ok || f.code != exitBusy || !strings.Contains(f.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("a second hold: %v", err)
	}
	first.Release()
	again, err := holdNode(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again.Release()
}

// TestRefreshWhileAnApplyHangs guards the heartbeat: run must not wait for the
// plan's lock.
func TestRefreshWhileAnApplyHangs(t *testing.T) {
	k := kernel{t.TempDir()}
	n := k.node()
	hung, err := agent.HoldPlan(n.runDir)
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Release()
	if err := n.refresh(&scripted{kernel: k}); err != nil {
		t.Error(err)
	}
}
