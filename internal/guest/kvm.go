// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// kvmProbeTime is how long a trivial guest may take with KVM. Where it really
// works it takes a second.
const kvmProbeTime = 20 * time.Second

// KVM tells whether guests of Mode Functional run with KVM on this machine. The
// first call boots one to find out.
func KVM(ctx context.Context, log *slog.Logger) bool { return kvmWorks(ctx, log) }

// kvmWorks tells whether a guest boots with KVM on this host. The device file
// alone proves nothing, so it boots one and remembers the answer until the
// next boot of the host.
func kvmWorks(ctx context.Context, log *slog.Logger) bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false
	}
	root, err := cacheDir()
	if err != nil {
		return false
	}
	path := filepath.Join(root, "kvm", strings.TrimSpace(string(id)))
	if b, err := os.ReadFile(path); err == nil {
		return string(b) == "works\n"
	}
	verdict := "fails\n"
	if err := probeKVM(ctx, log); err == nil {
		verdict = "works\n"
	} else if ctx.Err() != nil {
		return false // no answer is not a verdict
	} else {
		log.InfoContext(ctx, "emulating: a guest does not boot with kvm", "err", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		_ = os.WriteFile(path, []byte(verdict), 0o644)
	}
	return verdict == "works\n"
}

func probeKVM(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, kvmProbeTime)
	defer cancel()
	c := Command(Machine{Topology: "1s1c1t"}, "/bin/true")
	c.Log, c.accel = log, accelKVM
	return c.Run(ctx)
}
