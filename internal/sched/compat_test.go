// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// Without these flags exiting threads and those that cannot migrate are not
// accounted for, a CPU's last thread goes on without asking, and the kernel
// keeps no idle mask.
func TestOpsAreInitialised(t *testing.T) {
	spec, err := loadSched()
	if err != nil {
		t.Fatal(err)
	}
	ops := spec.Maps["temper_ops"]
	if err := initOps(ops); err != nil {
		t.Fatal(err)
	}
	value := ops.Contents[0].Value.([]byte)
	members := make(map[string][]byte)
	for _, m := range ops.Value.(*btf.Struct).Members {
		members[m.Name] = value[m.Offset.Bytes():]
	}
	if name := string(members["name"][:len(Name)+1]); name != Name+"\x00" {
		t.Errorf("name %q, want %q", name, Name)
	}
	// KEEP_BUILTIN_IDLE, ENQ_LAST, ENQ_EXITING, ENQ_MIGRATION_DISABLED, ALLOW_QUEUED_WAKEUP
	const flags = 1<<0 | 1<<1 | 1<<2 | 1<<4 | 1<<5
	if got := binary.LittleEndian.Uint64(members["flags"]); got != flags {
		t.Errorf("flags %#x, want %#x", got, flags)
	}
	if got := binary.LittleEndian.Uint32(members["timeout_ms"]); got != watchdogMillis || got > 30_000 {
		t.Errorf("watchdog %d ms", got)
	}
}

func TestMemberOffsets(t *testing.T) {
	object := bytes.NewReader(_SchedBytes)
	got, err := MemberOffsets(object, "cpu_ctx", "yields_in", "tier")
	if want := []uint32{4, 0}; err != nil || !slices.Equal(got, want) {
		t.Errorf("offsets %v, %v; want %v", got, err, want)
	}
	for _, of := range [][2]string{{"cpu_ctx", "nothing"}, {"no_such_struct", "tier"}} {
		if _, err := MemberOffsets(object, of[0], of[1]); err == nil || !strings.Contains(err.Error(), "struct "+of[0]) {
			t.Errorf("offset of %s in %s: %v", of[1], of[0], err)
		}
	}
	if _, err := MemberOffsets(strings.NewReader("no BTF"), "cpu_ctx"); err == nil {
		t.Error("read BTF out of text")
	}
}
