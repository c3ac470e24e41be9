// SPDX-License-Identifier: Apache-2.0

package tier

// Pod is what a pod's tier follows from.
type Pod struct {
	Priority   int32  // spec.priority, as the API server resolved it
	Class      string // spec.priorityClassName, "" if none
	BestEffort bool   // its QoS class
	Annotation string // temper.dev/tier, "" if none
}

// Thresholds are the priorities at which tiers begin.
type Thresholds struct {
	Critical   int32 // from here on critical; system classes are above and standard
	Background int32 // below this, background
}
