// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"reflect"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/topology"
)

// TestObservationEqual has each field of an observation and of a pod count, also
// one that is added later.
func TestObservationEqual(t *testing.T) {
	full := func() Observation {
		return Observation{
			Topology: topology.Topology{CPUs: []topology.CPU{{ID: 1}}}, Pods: []Pod{{}}, Defaults: []Group{{ID: 1}},
			Reserved: []int{0}, Lend: 1, CPUMax: CPUMaxRefuse,
		}
	}
	if !full().Equal(full()) {
		t.Error("it does not equal itself")
	}
	for i := range reflect.TypeFor[Observation]().NumField() {
		o := full()
		reflect.ValueOf(&o).Elem().Field(i).SetZero()
		if o.Equal(full()) {
			t.Errorf("without %s it is the same", reflect.TypeFor[Observation]().Field(i).Name)
		}
	}
	pod := Pod{"u", "n", "p", time.Unix(1, 0), 1, "w", 1, "/c", 1, []int{1}}
	for i := range reflect.TypeFor[Pod]().NumField() {
		other := pod
		reflect.ValueOf(&other).Elem().Field(i).SetZero()
		if other.Equal(pod) {
			t.Errorf("without %s a pod is the same", reflect.TypeFor[Pod]().Field(i).Name)
		}
	}
}
