// SPDX-License-Identifier: Apache-2.0

// Package bench is the laboratory's vocabulary.
//
// An Arm is how a node is run, a Scenario is what the node has to do, a Step is
// one rung of its ladder, a run is one scenario under one arm with one seed on
// one boot, a Window is one step of it as the node measured it, and a Record is
// a window with everything needed to believe or rerun it. Judge decides whether
// a record may be used, Digest whether two are the same.
//
// All of this is pure: package run boots guests, package node measures inside
// them, package load is the client, package report makes text of records.
package bench

import "math"

// KubeletWeight is the cpu.weight that kubelet gives a cgroup with a CPU
// request: shares of 1024 per CPU, at least 2, mapped so that 2, 1024 and
// 262144 become 1, 100 and 10000. (Before Kubernetes 1.35 the map was linear
// and one CPU gave 39; a request of nothing gives 1 in both.)
func KubeletWeight(milliCPU int) int {
	shares := max(2, milliCPU*1024/1000)
	if shares <= 2 {
		return 1
	}
	l := math.Log2(float64(min(shares, 262144)))
	return int(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}
