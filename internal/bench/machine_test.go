// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
)

func TestDifferencesNameWhatChanged(t *testing.T) {
	was := Machine{Kernel: "7.2.13", Emulator: "QEMU 10.0.2", Packages: map[string]string{"memcached": "1.6.39", "libc6": "2.42"}, Cmdline: "quiet"}
	is := was
	is.Cmdline, is.InitrdSHA256 = "quiet preempt=full", "abc" // the arm's own
	if d := Differences(was, is); len(d) > 0 {
		t.Errorf("got %q", d)
	}
	is.Emulator, is.Packages = "QEMU 10.1.0", map[string]string{"memcached": "1.6.40", "libc6": "2.42", "libz": "1"}
	is.Cluster = &Cluster{Kubelet: "v1.36.3", Runtime: "containerd://2.2.1", Agent: "sha256:12", Config: "mode: enforce"}
	got := strings.Join(Differences(was, is), "\n")
	for _, want := range []string{
		`emulator was "QEMU 10.0.2", is "QEMU 10.1.0"`, `package memcached was "1.6.39", is "1.6.40"`, `package libz was "", is "1"`,
		`cluster was "", is "kubelet v1.36.3, containerd://2.2.1, agent sha256:12 with \"mode: enforce\""`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}
