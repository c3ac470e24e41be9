// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/policy"
)

// What the kernel accepts in cpu.max, in microseconds: less or more is no limit
// that it wrote.
const (
	shortestPeriodUs = 1000
	longestPeriodUs  = 1_000_000
	leastQuotaUs     = 1000
	mostUs           = 1 << 44
)

// ParseMax reads cpu.max: "150000 100000", or "max 100000" for no limit, which
// is a quota of 0.
func ParseMax(text string) (quotaUs, periodUs uint64, err error) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return 0, 0, fmt.Errorf("parse cpu.max %q: two values are wanted", text)
	}
	periodUs, err = parseUs(fields[1], shortestPeriodUs, longestPeriodUs)
	if err != nil {
		return 0, 0, fmt.Errorf("parse period of cpu.max %q: %w", text, err)
	}
	if fields[0] == "max" {
		return 0, periodUs, nil
	}
	quotaUs, err = parseUs(fields[0], leastQuotaUs, mostUs)
	if err != nil {
		return 0, 0, fmt.Errorf("parse quota of cpu.max %q: %w", text, err)
	}
	return quotaUs, periodUs, nil
}

func parseUs(text string, least, most uint64) (uint64, error) {
	us, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of microseconds", text)
	}
	if us < least || us > most {
		return 0, fmt.Errorf("%d µs is not between %d and %d", us, least, most)
	}
	return us, nil
}

// Limits returns the CPU limits that cgroups have, parents before children.
// Cgroups that vanish meanwhile are left out, and so are those without the cpu
// controller, which have none. Where one is hidden the others' limits come with
// an error that wraps fs.ErrPermission: what is missing then was not lifted.
func (t *Tree) Limits() ([]policy.Limit, error) {
	var limits []policy.Limit
	var hidden error // the first: one says it
	unless := func(err error) error {
		if isHidden(err) {
			hidden = cmp.Or(hidden, err)
			return nil
		}
		return unlessGone(err)
	}
	err := fs.WalkDir(t.fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || name == "." {
			return unless(err)
		}
		l, err := t.limit(name)
		if err != nil || l.QuotaUs == 0 {
			return unless(err)
		}
		info, err := entry.Info()
		if err != nil {
			return unless(err)
		}
		if l.ID, err = inode(info); err != nil {
			return err
		}
		limits = append(limits, l)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list CPU limits: %w", err)
	}
	if hidden != nil {
		return limits, fmt.Errorf("list CPU limits: %w", hidden)
	}
	return limits, nil
}

// limit returns the limit of one cgroup, with a quota of 0 if it has none.
func (t *Tree) limit(name string) (policy.Limit, error) {
	l := policy.Limit{Cgroup: path.Join("/", name)}
	text, err := fs.ReadFile(t.fsys, path.Join(name, "cpu.max"))
	if err != nil {
		return l, err
	}
	if l.QuotaUs, l.PeriodUs, err = ParseMax(string(text)); err != nil || l.QuotaUs == 0 {
		return l, err
	}
	text, err = fs.ReadFile(t.fsys, path.Join(name, "cpu.max.burst"))
	if err != nil {
		return l, err
	}
	l.BurstUs, err = parseUs(strings.TrimSpace(string(text)), 0, mostUs)
	if err != nil {
		err = fmt.Errorf("parse cpu.max.burst of cgroup %s: %w", l.Cgroup, err)
	}
	return l, err
}

// IsGone tells the error of reading a cgroup that is not there to be read: it does
// not exist any more, or is hidden.
func IsGone(err error) bool { return vanished(err) || isHidden(err) }

func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

// isHidden tells the error of reading a cgroup that is closed to this process: who
// was given one may chmod it, and the agent is uid 0 without CAP_DAC_OVERRIDE.
// Nobody may blind it for the rest of the node so.
func isHidden(err error) bool { return errors.Is(err, fs.ErrPermission) }

// unlessGone drops the error of a cgroup that was removed meanwhile.
func unlessGone(err error) error {
	if vanished(err) {
		return nil
	}
	return err
}

// Usage returns the CPU time that the kernel counted for the cgroup at p and
// everything below it since it was made.
func (t *Tree) Usage(p string) (time.Duration, error) {
	text, err := fs.ReadFile(t.fsys, path.Join(local(p), "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("read CPU time of cgroup %s: %w", p, cause(err))
	}
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(strings.TrimSpace(line), "usage_usec ")
		if !found {
			continue
		}
		us, err := parseUs(value, 0, 1<<53)
		if err != nil {
			return 0, fmt.Errorf("read CPU time of cgroup %s: %w", p, err)
		}
		return time.Duration(us) * time.Microsecond, nil
	}
	return 0, fmt.Errorf("read CPU time of cgroup %s: cpu.stat has no usage_usec", p)
}
