// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/tier"
)

// ErrTorn means that a CPU's ledger did not add up in any of many readings.
var ErrTorn = errors.New("the ledger does not add up")

const (
	// stateBits is where a ledger's state keeps its bucket (probe_ledger.bpf.h).
	stateBits = 4
	// tornAttempts and tornLimit, both, end the attempts to read a ledger
	// whole. A writer needs nanoseconds, unless its CPU is a guest's and waits
	// for a turn; a reader may be switched out in the middle of each attempt.
	tornAttempts = 100
	tornLimit    = time.Second
	// readingSlack is how long a reading may take, and how long a group's
	// interval may be that goes unnoticed because it ended meanwhile.
	readingSlack = time.Millisecond
	// silence is how long no CPU may have switched before a reader asks
	// whether anybody measures at all.
	silence = time.Second
)

// buckets maps the kernel side's buckets to ours.
var buckets = [probeTemperBucketTEMPER_TIME_BUCKETS]Bucket{
	probeTemperBucketTEMPER_TIME_OWN:             BucketOwn,
	probeTemperBucketTEMPER_TIME_CRITICAL:        BucketCritical,
	probeTemperBucketTEMPER_TIME_SYSTEM:          BucketSystem,
	probeTemperBucketTEMPER_TIME_STANDARD:        BucketStandard,
	probeTemperBucketTEMPER_TIME_BACKGROUND:      BucketBackground,
	probeTemperBucketTEMPER_TIME_LENT_SYSTEM:     BucketLent,
	probeTemperBucketTEMPER_TIME_LENT_STANDARD:   BucketLent,
	probeTemperBucketTEMPER_TIME_LENT_BACKGROUND: BucketLent,
	probeTemperBucketTEMPER_TIME_OTHER:           BucketOther,
	probeTemperBucketTEMPER_TIME_IRQ:             BucketIRQ,
	probeTemperBucketTEMPER_TIME_IDLE:            BucketIdle,
}

// tiers maps the kernel side's buckets to the tier that used the CPU; the
// others' time is no tier's.
var tiers = map[probeTemperBucket]tier.Tier{
	probeTemperBucketTEMPER_TIME_OWN:             tier.Critical,
	probeTemperBucketTEMPER_TIME_CRITICAL:        tier.Critical,
	probeTemperBucketTEMPER_TIME_SYSTEM:          tier.System,
	probeTemperBucketTEMPER_TIME_STANDARD:        tier.Standard,
	probeTemperBucketTEMPER_TIME_BACKGROUND:      tier.Background,
	probeTemperBucketTEMPER_TIME_LENT_SYSTEM:     tier.System,
	probeTemperBucketTEMPER_TIME_LENT_STANDARD:   tier.Standard,
	probeTemperBucketTEMPER_TIME_LENT_BACKGROUND: tier.Background,
}

// readings are the maps that the probe fills.
type readings struct {
	maps   map[string]*ebpf.Map
	nrCPUs int
	cpus   *ebpf.Memory
	groups *ebpf.Memory
}

func newReadings(maps map[string]*ebpf.Map, nrCPUs int) (r readings, err error) {
	r = readings{maps: maps, nrCPUs: nrCPUs}
	if r.cpus, err = maps[probeMapCpuTimes].Memory(); err != nil {
		return r, fmt.Errorf("map ledger: %w", err)
	}
	if r.groups, err = maps[probeMapGroupDelays].Memory(); err != nil {
		return r, fmt.Errorf("map group delays: %w", err)
	}
	return r, nil
}

// ledger is one CPU's, read whole.
type ledger struct {
	probeTemperCpuTime
	cpu int
}

func (l ledger) since() time.Duration      { return time.Duration(l.State >> stateBits) }
func (l ledger) bucket() probeTemperBucket { return probeTemperBucket(l.State & (1<<stateBits - 1)) }

// times returns the time in each of the kernel side's buckets, the interval in
// progress included, which ends at now.
func (l ledger) times(now time.Duration) (ns [probeTemperBucketTEMPER_TIME_BUCKETS]time.Duration) {
	for i, n := range l.Ns {
		ns[i] = time.Duration(n)
	}
	ns[l.bucket()] += now - l.since()
	return ns
}

// Read returns what was measured since the start: of Stats, the CPUs' ledgers,
// the tiers' and groups' CPU time and delays, and in Events what was missed.
//
// The ledgers are of one moment, Stats.At: a CPU's buckets add up to the time
// since its first event. What a CPU did while it was read is put right by the
// next reading.
func (r *readings) Read() (Stats, error) {
	at, ledgers, ids, groups, err := r.readAgreeing()
	if err != nil {
		return Stats{}, err
	}
	s := Stats{At: at}
	if s.Tiers, err = r.Delays(); err != nil {
		return Stats{}, err
	}
	running := make(map[uint32]time.Duration)
	for _, l := range ledgers {
		c := CPUTime{CPU: l.cpu}
		for b, d := range l.times(s.At) {
			c.Buckets[buckets[b]] += d
			if t, ok := tiers[probeTemperBucket(b)]; ok {
				s.Tiers[t].CPU += d
			}
		}
		s.CPUs = append(s.CPUs, c)
		running[l.Slot] += s.At - time.Duration(l.SwitchedAt)
	}
	for slot, id := range ids {
		s.Groups = append(s.Groups, groupStats(id, groups[slot], running[slot]))
	}
	slices.SortFunc(s.Groups, func(a, b GroupStats) int { return cmp.Compare(a.ID, b.ID) })
	s.Events, err = r.readMisses()
	return s, err
}

// Delays returns, of Read's, only how long the tiers' tasks waited: a short
// reading, for who must not keep a CPU for long.
func (r *readings) Delays() (out [tier.Count]TierStats, err error) {
	for t := range out {
		if out[t], err = r.readTier(tier.Tier(t)); err != nil {
			return out, err
		}
	}
	return out, nil
}

// Tiers returns, of Read's, the tiers' figures alone: no group is read, which
// takes time for each of them and may have to be repeated.
func (r *readings) Tiers() (out [tier.Count]TierStats, err error) {
	ledgers, err := r.readLedgers()
	if err != nil {
		return out, err
	}
	at := monotonic()
	if out, err = r.Delays(); err != nil {
		return out, err
	}
	for _, l := range ledgers {
		for b, d := range l.times(at) {
			if t, ok := tiers[probeTemperBucket(b)]; ok {
				out[t].CPU += d
			}
		}
	}
	return out, nil
}

// Missed returns what the probe could not measure, by name.
func (r *readings) Missed() (map[string]int64, error) { return r.readMisses() }

// readAgreeing reads the groups between two readings of the ledgers, until no
// group's long interval ended in between, which might be in neither, and the
// last reading was a quick one. On a machine that has no time, the last
// attempt has to do.
func (r *readings) readAgreeing() (at time.Duration, after []ledger, ids map[uint32]uint64, groups map[uint32]probeTemperGroupDelay, err error) {
	const attempts = 8
	before, err := r.readLive()
	for range attempts {
		if err != nil {
			break
		}
		if ids, groups, err = r.readGroups(); err != nil {
			break
		}
		began := monotonic()
		after, err = r.readLedgers()
		at = monotonic()
		if err == nil && agree(before, after) && at-began < readingSlack {
			break
		}
		before = after
	}
	return at, after, ids, groups, err
}

func agree(before, after []ledger) bool {
	return slices.EqualFunc(before, after, func(a, b ledger) bool {
		return a.cpu == b.cpu && (a.SwitchedAt == b.SwitchedAt || time.Duration(b.SwitchedAt-a.SwitchedAt) < readingSlack)
	})
}

// readLive reads the ledgers of a probe that runs. If no CPU switched for long,
// this thread's own short sleep must show up.
func (r *readings) readLive() ([]ledger, error) {
	ledgers, err := r.readLedgers()
	if err != nil {
		return nil, err
	}
	asked := monotonic()
	if asked-newest(ledgers) < silence {
		return ledgers, nil
	}
	pause := unix.NsecToTimespec(int64(time.Millisecond))
	if err := unix.Nanosleep(&pause, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("wait for a switch: %w", err)
	}
	if ledgers, err = r.readLedgers(); err != nil {
		return nil, err
	}
	if newest(ledgers) < asked {
		return nil, fmt.Errorf("read ledger: %w: nothing was counted for %v", ErrNotMeasured, asked-newest(ledgers))
	}
	return ledgers, nil
}

func newest(ledgers []ledger) (at time.Duration) {
	for _, l := range ledgers {
		at = max(at, l.since())
	}
	return at
}

// readLedgers returns the ledgers of all CPUs that have been online.
func (r *readings) readLedgers() ([]ledger, error) {
	var out []ledger
	for cpu := range r.nrCPUs {
		l, err := r.readLedger(cpu)
		if err != nil {
			return nil, fmt.Errorf("read ledger of CPU %d: %w", cpu, err)
		}
		if l.StartNs != 0 {
			out = append(out, l)
		}
	}
	return out, nil
}

// readLedger reads until nobody wrote in between: the state is the same before
// and after, and what it says adds up.
func (r *readings) readLedger(cpu int) (ledger, error) {
	const stateAt = int64(unsafe.Offsetof(probeTemperCpuTime{}.State))
	var buf [unsafe.Sizeof(probeTemperCpuTime{})]byte
	at := int64(cpu) * int64(len(buf))
	began := monotonic()
	for attempt := 0; ; attempt++ {
		before, err := r.readWord(at + stateAt)
		if err != nil {
			return ledger{}, err
		}
		if err := copyWords(r.cpus, buf[:], at); err != nil {
			return ledger{}, err
		}
		after, err := r.readWord(at + stateAt)
		if err != nil {
			return ledger{}, err
		}
		l := ledger{cpu: cpu}
		if _, err := binary.Decode(buf[:], binary.LittleEndian, &l.probeTemperCpuTime); err != nil {
			return ledger{}, err
		}
		if before == after && l.addsUp() {
			return l, nil
		}
		if attempt >= tornAttempts && monotonic()-began > tornLimit {
			return ledger{}, ErrTorn
		}
	}
}

// addsUp reports whether the ledger is whole, or was not begun.
func (l ledger) addsUp() bool {
	var sum uint64
	for _, ns := range l.Ns {
		sum += ns
	}
	return l.StartNs == 0 || sum == l.State>>stateBits-l.StartNs
}

// readWord reads eight bytes of the ledgers, in one piece.
func (r *readings) readWord(at int64) (uint64, error) {
	var word [8]byte
	if _, err := r.cpus.ReadAt(word[:], at); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(word[:]), nil
}

// copyWords copies what others write meanwhile. A longer copy may be made byte
// by byte, and tear a word.
func copyWords(m *ebpf.Memory, buf []byte, at int64) error {
	const longest = 256
	for i := 0; i < len(buf); i += longest {
		part := buf[i:min(i+longest, len(buf))]
		if _, err := m.ReadAt(part, at+int64(i)); err != nil {
			return err
		}
	}
	return nil
}

// readGroups returns the groups' ids and figures by slot.
func (r *readings) readGroups() (ids map[uint32]uint64, groups map[uint32]probeTemperGroupDelay, err error) {
	ids = make(map[uint32]uint64)
	groups = make(map[uint32]probeTemperGroupDelay)
	var id uint64
	var slot uint32
	directory := r.maps[probeMapGroupSlots].Iterate()
	for directory.Next(&id, &slot) {
		ids[slot] = id
	}
	if err := directory.Err(); err != nil {
		return nil, nil, fmt.Errorf("read group directory: %w", err)
	}
	var g probeTemperGroupDelay
	buf := make([]byte, binary.Size(g))
	for slot, id := range ids {
		if err := copyWords(r.groups, buf, int64(slot)*int64(len(buf))); err != nil {
			return nil, nil, fmt.Errorf("read group %d: %w", id, err)
		}
		if _, err := binary.Decode(buf, binary.LittleEndian, &g); err != nil {
			return nil, nil, fmt.Errorf("decode group %d: %w", id, err)
		}
		if g.Cgroup != id { // it died meanwhile
			delete(ids, slot)
			continue
		}
		groups[slot] = g
	}
	return ids, groups, nil
}

func (r *readings) readTier(t tier.Tier) (TierStats, error) {
	s := TierStats{Tier: t, WakeupDelay: Histogram{Counts: make([]uint64, histBuckets)}}
	var perCPU []probeTemperTierDelay
	if err := r.maps[probeMapTierDelays].Lookup(uint32(t), &perCPU); err != nil {
		return s, fmt.Errorf("read delays of tier %s: %w", t, err)
	}
	for _, d := range perCPU {
		s.WakeupDelay.Merge(histogram(d.WakeupDelay))
		s.WorstWait = max(s.WorstWait, time.Duration(d.WakeupDelay.MaxNs), time.Duration(d.WorstRequeueNs))
		s.Inversion += time.Duration(d.InversionNs)
		s.InversionMax = max(s.InversionMax, time.Duration(d.InversionMaxNs))
	}
	return s, nil
}

func (r *readings) readMisses() (map[string]int64, error) {
	var m probeTemperProbeMisses
	if err := r.maps[probeMapProbeMisses].Lookup(uint32(0), &m); err != nil {
		return nil, fmt.Errorf("read misses: %w", err)
	}
	return map[string]int64{"probe_tasks_missed": int64(m.Tasks), "probe_groups_missed": int64(m.Groups)}, nil
}

func groupStats(id uint64, g probeTemperGroupDelay, running time.Duration) GroupStats {
	return GroupStats{
		ID:          id,
		Tier:        tier.Tier(g.Tier),
		CPU:         time.Duration(g.CpuNs) + running,
		WakeupDelay: histogram(g.WakeupDelay),
		WorstWait:   max(time.Duration(g.WakeupDelay.MaxNs), time.Duration(g.WorstRequeueNs)),
	}
}

func histogram(h probeTemperHist) Histogram {
	return Histogram{Counts: h.Counts[:], Max: time.Duration(h.MaxNs), Sum: time.Duration(h.SumNs)}
}
