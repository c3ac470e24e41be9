/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ledger: every nanosecond of every CPU is in one bucket.
 *
 * A CPU writes its own entry only: under its runqueue lock at a switch, and
 * around interrupts. An interrupt that comes while the entry is written finds
 * irq_depth above zero and changes nothing else.
 *
 * Interrupts are device interrupts and softirqs. The local timer and interrupts
 * between CPUs count as what they interrupted: two more programs for each would
 * cost more than they measure.
 *
 * An offline CPU's time belongs to "other": the stop class took it down, and
 * tracepoints are silent from then on.
 */
#ifndef TEMPER_PROBE_LEDGER_BPF_H
#define TEMPER_PROBE_LEDGER_BPF_H

#define STATE_BUCKET_BITS 4
#define STATE_BUCKET_MASK (TEMPER_TIME_BUCKETS - 1)

_Static_assert(1 << STATE_BUCKET_BITS == TEMPER_TIME_BUCKETS, "a bucket fits the state");
_Static_assert(TEMPER_TIME_LENT_SYSTEM - TEMPER_TIME_SYSTEM ==
		       TEMPER_TIME_LENT_BACKGROUND - TEMPER_TIME_BACKGROUND,
	       "lent buckets are in the order of the others");

/*
 * CPU -> its ledger. Written by the CPU itself; read by internal/sched.Probe
 * through a memory map, and its lower_* by any CPU. Lives as long as the probe.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TEMPER_MAX_CPUS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct temper_cpu_time);
} cpu_times SEC(".maps");

static __always_inline struct temper_cpu_time *try_lookup_ledger(u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_times, &cpu);
}

/* Close the interval that began at the last call and begin one in bucket. */
static __always_inline void enter_bucket(struct temper_cpu_time *cpu, u32 bucket, u64 now)
{
	u64 state = cpu->state;

	cpu->ns[state & STATE_BUCKET_MASK] += now - (state >> STATE_BUCKET_BITS);
	*(volatile u64 *)&cpu->state = now << STATE_BUCKET_BITS | bucket;
}

/* A CPU's first event: the loader's visit, or it came online later. */
static __always_inline void start_ledger(struct temper_cpu_time *cpu, u64 now)
{
	cpu->slot = TEMPER_PROBE_GROUPS; /* none */
	cpu->switched_at = now;
	*(volatile u64 *)&cpu->state = now << STATE_BUCKET_BITS | TEMPER_TIME_SYSTEM;
	*(volatile u64 *)&cpu->start_ns = now;
}

static __always_inline void enter_irq(void)
{
	struct temper_cpu_time *cpu = try_lookup_ledger(bpf_get_smp_processor_id());

	if (!cpu || !cpu->start_ns)
		return;
	/* The depth first: an interrupt that nests here must see it. */
	if ((*(volatile u32 *)&cpu->irq_depth)++)
		return;
	enter_bucket(cpu, TEMPER_TIME_IRQ, bpf_ktime_get_ns());
}

static __always_inline void leave_irq(void)
{
	struct temper_cpu_time *cpu = try_lookup_ledger(bpf_get_smp_processor_id());
	u32 depth;

	if (!cpu)
		return;
	depth = *(volatile u32 *)&cpu->irq_depth;
	/* Zero: the probe was attached inside an interrupt. */
	if (!depth)
		return;
	if (depth == 1)
		enter_bucket(cpu, cpu->context & STATE_BUCKET_MASK, bpf_ktime_get_ns());
	*(volatile u32 *)&cpu->irq_depth = depth - 1;
}

/*
 * Note whether a tier below critical runs here. Another CPU may read the two
 * stamps in between: it then sees an interval of no length (stores stay in
 * order on x86).
 */
static __always_inline void note_lower(struct temper_cpu_time *cpu, bool lower, u64 now)
{
	if (lower == cpu->is_lower)
		return;
	cpu->is_lower = lower;
	if (!lower) {
		*(volatile u64 *)&cpu->lower_until = now;
		return;
	}
	*(volatile u64 *)&cpu->lower_since = now;
	*(volatile u64 *)&cpu->lower_until = 0;
}

#endif
