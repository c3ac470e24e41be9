/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a critical thread takes back when it begins, of its core and of its
 * fence, and what it sets free when it ends.
 */
#ifndef TEMPER_LEND_BPF_H
#define TEMPER_LEND_BPF_H

/* A critical task begins on cpu: nothing below it may stay on its core. */
static __always_inline void clear_core(s32 cpu)
{
	s32 sibling;
	int i;

	if (!has_smt)
		return;
	for_each_sibling(sibling, cpu, i) {
		if (is_preemptible(TEMPER_BACKGROUND, sibling) &&
		    clear_preemptible(TEMPER_BACKGROUND, sibling))
			scx_bpf_kick_cpu(sibling, SCX_KICK_PREEMPT);
	}
}

/* The pod woke: take back what its policy does not lend while it is busy. */
__noinline int reclaim_fence(u64 generation, u32 lend, s32 cpu)
{
	u32 id = fence_of_cpu(generation, cpu);
	struct temper_mask *fence = plan_fence(generation, id);
	int i, tier;

	if (!id || !fence)
		return 0;
	if (lend == TEMPER_LEND_LANDING && (fence_use(generation, cpu) & 2))
		return 0;
	for_each_num(i, 0, TEMPER_MAX_CPUS) {
		if (i >= nr_cpus)
			break;
		if (i == cpu || !mask_has(fence, i))
			continue;
		for (tier = TEMPER_BACKGROUND; tier > TEMPER_CRITICAL; tier--) {
			if (!is_preemptible(tier, i) || !clear_preemptible(tier, i))
				continue;
			scx_bpf_kick_cpu(i, SCX_KICK_PREEMPT);
			if (lend == TEMPER_LEND_LANDING)
				return 0;
		}
	}
	return 0;
}

/*
 * This CPU stopped to be critical: its core, or its fence, may now serve those
 * that were refused. They wait in queues, and nobody else wakes an idle CPU.
 */
__noinline int offer_released(u64 generation, s32 cpu)
{
	u32 fence_id = fence_of_cpu(generation, cpu);
	struct temper_mask *fence;
	s32 sibling;
	int i;

	if (has_smt) {
		for_each_sibling(sibling, cpu, i) {
			if (scx_bpf_test_and_clear_cpu_idle(sibling))
				scx_bpf_kick_cpu(sibling, SCX_KICK_IDLE);
		}
	}
	fence = plan_fence(generation, fence_id);
	if (!fence_id || !fence)
		return 0;
	for_each_num(i, 0, TEMPER_MAX_CPUS) {
		if (i >= nr_cpus)
			break;
		if (i != cpu && mask_has(fence, i) && scx_bpf_test_and_clear_cpu_idle(i))
			scx_bpf_kick_cpu(i, SCX_KICK_IDLE);
	}
	return 0;
}

#endif
