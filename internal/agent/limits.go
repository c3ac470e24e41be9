// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/sched"
)

// Follower tells the kernel side of CPU limits where the kernel does not. It is
// good for one attach.
type Follower struct {
	List  func() ([]policy.Limit, error) // those that cgroups have now
	Set   func(policy.Limit) error
	Held  func() ([]sched.LimitStats, error) // what it has of an adopted one's time
	known map[uint64]policy.Limit            // by cgroup id: what the kernel side was told
}

// Follow passes on what changed. What could not be set is tried again next time. While
// a cgroup is hidden none is lifted: what is not seen may hold still.
func (f *Follower) Follow() error {
	now, err := f.List()
	hidden := errors.Is(err, fs.ErrPermission)
	if err != nil && !hidden {
		return err
	}
	if f.known == nil {
		held, err := f.Held()
		if err != nil {
			return err
		}
		f.known = map[uint64]policy.Limit{}
		for _, l := range held {
			if l.Quota > 0 {
				f.known[l.ID] = policy.Limit{ID: l.ID, QuotaUs: us(l.Quota), PeriodUs: us(l.Period), BurstUs: us(l.Burst)}
			}
		}
	}
	errs := []error{err}
	for _, l := range policy.LimitChanges(f.known, now) {
		if hidden && l.QuotaUs == 0 {
			continue
		}
		err := f.Set(l)
		gone := errors.Is(err, unix.ENOENT)
		switch {
		case err != nil && !gone:
			errs = append(errs, err)
		case gone || l.QuotaUs == 0:
			delete(f.known, l.ID)
		default:
			f.known[l.ID] = l
		}
	}
	return errors.Join(errs...)
}

func us(d time.Duration) uint64 { return uint64(d / time.Microsecond) }
