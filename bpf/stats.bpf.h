/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the scheduler counts about itself. Delays, CPU time and inversion are
 * class-neutral and belong to the probe (probe.bpf.c).
 */
#ifndef TEMPER_STATS_BPF_H
#define TEMPER_STATS_BPF_H

/* Tier -> counters, one copy per CPU. Read by internal/sched.Stats; never reset. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TEMPER_TIERS);
	__type(key, u32);
	__type(value, struct temper_tier_counters);
} tier_counters SEC(".maps");

static __always_inline struct temper_tier_counters *counters_of(u32 tier)
{
	return bpf_map_lookup_elem(&tier_counters, &tier);
}

static __always_inline void count_preemption(u32 tier)
{
	struct temper_tier_counters *c = counters_of(tier);

	if (c)
		c->preemptions++;
}

static __always_inline void count_preempted(u32 tier)
{
	struct temper_tier_counters *c = counters_of(tier);

	if (c)
		c->preempted++;
}

static __always_inline void count_rescued(u32 tier)
{
	struct temper_tier_counters *c = counters_of(tier);

	if (c)
		c->rescued++;
}

static __always_inline void count_wait(u32 tier, u64 wait_ns)
{
	struct temper_tier_counters *c = counters_of(tier);

	if (c && (s64)wait_ns > (s64)c->worst_wait_ns)
		c->worst_wait_ns = wait_ns;
}

#endif
