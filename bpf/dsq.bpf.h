/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ids of the dispatch queues.
 *
 *   bit  32      31 .. 16       15 .. 0
 *        0       kind           LLC or CPU
 *        1       slot of a gate
 *
 * kind 1 + tier: the tier's queue of an LLC, ordered by virtual time.
 * kind 8: the rescue queue of a CPU, ordered by how long each task waited.
 * A gate's queue is ordered by how long each thread waited there, too.
 */
#ifndef TEMPER_DSQ_BPF_H
#define TEMPER_DSQ_BPF_H

#define DSQ_KIND_SHIFT 16
#define DSQ_KIND_TIER 1ULL
#define DSQ_KIND_RESCUE 8ULL
#define DSQ_OF_GATE (1ULL << 32)

_Static_assert(DSQ_KIND_TIER + TEMPER_TIERS <= DSQ_KIND_RESCUE, "kinds overlap");
_Static_assert(TEMPER_MAX_CPUS <= 1 << DSQ_KIND_SHIFT, "CPU ids fit");

static __always_inline u64 tier_dsq(u32 tier, u32 llc)
{
	return (DSQ_KIND_TIER + tier) << DSQ_KIND_SHIFT | llc;
}

static __always_inline u64 rescue_dsq(s32 cpu)
{
	return DSQ_KIND_RESCUE << DSQ_KIND_SHIFT | (u32)cpu;
}

static __always_inline u64 gate_dsq(u32 slot)
{
	return DSQ_OF_GATE | slot;
}

#endif
