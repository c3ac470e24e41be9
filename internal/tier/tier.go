// SPDX-License-Identifier: Apache-2.0

// Package tier names the four ranks in which Temper serves threads.
//
// It is the vocabulary that the policy, the adapters and the BPF side share: a
// leaf that imports nothing of the project. The numbers are part of the ABI
// with bpf/intf.h; a test compares the two.
package tier

import (
	"fmt"
	"strings"
)

// Tier is how long a pod's wakeups may wait. A lower number outranks a higher one.
type Tier uint8

// The tiers, in rank.
const (
	Critical   Tier = iota // never waits while a lower tier runs on a CPU it may use
	System                 // whatever is not a pod: kubelet, runtime, sshd, unbound kernel threads
	Standard               // pods without a special class
	Background             // runs on what the others leave
)

// Count is the number of tiers.
const Count = 4

var names = [Count]string{"critical", "system", "standard", "background"}

// All lists the tiers in rank.
func All() [Count]Tier { return [Count]Tier{Critical, System, Standard, Background} }

// String returns the tier's name, or "tier(N)" for a value that is none.
func (t Tier) String() string {
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// Parse returns the tier called name. The names are lower case.
func Parse(name string) (Tier, error) {
	for i, n := range names {
		if n == name {
			return Tier(i), nil
		}
	}
	return 0, fmt.Errorf("unknown tier %q: one of %s", name, strings.Join(names[:], ", "))
}

// MarshalText makes tiers appear by name in JSON and YAML.
func (t Tier) MarshalText() ([]byte, error) {
	if int(t) >= len(names) {
		return nil, fmt.Errorf("unknown tier %d", uint8(t))
	}
	return []byte(names[t]), nil
}

// UnmarshalText is the inverse of MarshalText.
func (t *Tier) UnmarshalText(text []byte) error {
	v, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = v
	return nil
}
