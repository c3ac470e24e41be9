// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"os"
	"testing"

	"github.com/temper-sched/temper/internal/topology"
)

// requireGuest skips a test that changes the machine it runs on, unless that
// machine is a guest of internal/guest. With REQUIRE_ALL=1 a skip is a failure:
// the guest run may not skip what it exists for.
func requireGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("TEMPER_GUEST") == "1" {
		return
	}
	if os.Getenv("REQUIRE_ALL") == "1" {
		t.Fatal("needs a guest: run it by make guest")
	}
	t.Skip("needs a guest: run it by make guest")
}

func readTopology(t *testing.T) []topology.CPU {
	t.Helper()
	cpus, err := readCPUs()
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

func readCPUs() ([]topology.CPU, error) {
	topo, err := topology.Read(os.DirFS(topology.Root))
	return topo.CPUs, err
}
