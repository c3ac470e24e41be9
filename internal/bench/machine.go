// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"maps"
	"slices"
)

// Differences lists what two machines must have in common for their windows to
// be comparable, and have not. What differs from run to run is left out.
func Differences(was, is Machine) []string {
	var out []string
	for _, f := range []struct{ name, was, is string }{
		{"clock", was.Clock, is.Clock},
		{"kernel", was.Kernel, is.Kernel},
		{"kernel package", was.KernelPackage, is.KernelPackage},
		{"topology", was.Topology, is.Topology},
		{"emulator", was.Emulator, is.Emulator},
		{"accelerator", was.Accel, is.Accel},
		{"clock plugin", was.PluginSHA256, is.PluginSHA256},
		{"clock quantum", was.ClockQuantum.String(), is.ClockQuantum.String()},
		{"cluster", was.Cluster.String(), is.Cluster.String()},
	} {
		if f.was != f.is {
			out = append(out, fmt.Sprintf("%s was %q, is %q", f.name, f.was, f.is))
		}
	}
	names := maps.Clone(was.Packages)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, is.Packages)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a, b := was.Packages[name], is.Packages[name]; a != b {
			out = append(out, fmt.Sprintf("package %s was %q, is %q", name, a, b))
		}
	}
	return out
}

// String names what a node's figures depend on; it is empty where there is no cluster.
func (c *Cluster) String() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("kubelet %s, %s, agent %s with %q", c.Kubelet, c.Runtime, c.Agent, c.Config)
}
