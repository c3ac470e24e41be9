// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"time"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

type podName struct{ namespace, name string }

// pacing sums over pods' limits, their own and their containers', from reading to
// reading of one attach: what a container was paced stays when its limit has gone
// with it. Its maps never change.
type pacing struct {
	counted map[uint64]time.Duration // by limit: what the sums have of it
	sums    map[podName]time.Duration
}

// with returns the sums after a further reading. A limit whose cgroup is gone has
// no name, and counts no more.
func (p pacing) with(pods []policy.Pod, limits []sched.LimitStats) pacing {
	names := map[string]podName{}
	next := pacing{map[uint64]time.Duration{}, map[podName]time.Duration{}}
	for _, pod := range pods {
		name := podName{pod.Namespace, pod.Name}
		if sum, ok := p.sums[name]; ok {
			next.sums[name] = sum
		}
		if pod.Cgroup != "" {
			names[pod.Cgroup] = name
		}
	}
	for _, l := range limits {
		counted := p.counted[l.ID]
		next.counted[l.ID] = counted
		for at := l.Cgroup; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
			if name, ok := names[at]; ok {
				next.sums[name] += l.Paced - min(counted, l.Paced)
				next.counted[l.ID] = l.Paced
				break
			}
		}
	}
	return next
}
