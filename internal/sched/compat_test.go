// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"encoding/binary"
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
