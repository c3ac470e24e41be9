/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The search for a CPU to take by preemption, where none is idle.
 */
#ifndef TEMPER_VICTIM_BPF_H
#define TEMPER_VICTIM_BPF_H

/*
 * Stand for the kernel's __preempt_count and __softirq_pending, variables that each CPU has:
 * the loader puts their BTF ids here, for which libbpf's way of writing it is not known to
 * ours.
 */
#define PREEMPT_COUNT_MARK 0x74656d70
#define SOFTIRQ_PENDING_MARK 0x74656d71
/* x86 keeps "need not reschedule" in it. */
#define PREEMPT_COUNT_BITS 0x7fffffff
#define SOFTIRQ_COUNT_BITS 0x0000ff00

#define kernel_variable(pointer, variable_mark) \
	asm volatile("%[address] = %[mark] ll"  \
		     : [address] "=r"(pointer)  \
		     : [mark] "i"(variable_mark))

/*
 * Is the kernel on cpu not in the midst of what nobody preempts, as packets or a spinlock?
 * Whoever is sent there waits until that is done. Of interrupts that are off nobody knows.
 */
static __always_inline bool can_preempt_now(s32 cpu)
{
	const int *count;

	if (!has_preempt_count)
		return true;
	kernel_variable(count, PREEMPT_COUNT_MARK);
	count = bpf_per_cpu_ptr(count, cpu);
	return !count || !(*(volatile int *)count & PREEMPT_COUNT_BITS);
}

/*
 * Can it be preempted when the wakeup is over? This CPU, which wakes somebody, holds the
 * wakeup's own locks and is often in a timer's interrupt: both end in a moment. But softirqs
 * that it handles, or that are raised, go first.
 */
static __always_inline bool can_preempt_here(s32 cpu)
{
	const u16 *pending;
	const int *count;

	if (!has_preempt_count)
		return false;
	kernel_variable(count, PREEMPT_COUNT_MARK);
	count = bpf_per_cpu_ptr(count, cpu);
	if (!count || *(volatile int *)count & SOFTIRQ_COUNT_BITS)
		return false;
	kernel_variable(pending, SOFTIRQ_PENDING_MARK);
	pending = bpf_per_cpu_ptr(pending, cpu);
	return pending && !*(volatile u16 *)pending;
}

/* CPUs that a search looks at so closely, and that are called where none can come at once. */
#define MAX_AT_ONCE 4

/* Of candidates, the first that can be preempted at once, as a mask. */
static __always_inline u64 candidate_at_once(struct search *s, u32 word, u64 candidates)
{
	int i;

	for (i = 0; i < MAX_AT_ONCE; i++) {
		s32 cpu;

		if (!candidates)
			break;
		cpu = first_candidate(s, word, candidates);
		if (can_preempt_now(cpu))
			return cpu_bit(cpu);
		s->late = true;
		candidates &= ~cpu_bit(cpu);
	}
	return 0;
}

static __always_inline s32 claim_victim_at(const struct task_struct *p, struct search *s,
					   u32 victim, u32 word)
{
	u64 candidates, *running = preemptible_word(victim, word * 64);

	if (!running)
		return -1;
	candidates = *(volatile u64 *)running;
	if (!candidates)
		return -1;
	candidates &= mask_word(p->cpus_ptr, word) & zone_word(s, word);
	if (s->at_once)
		candidates = candidate_at_once(s, word, candidates);
	return candidates ? claim_in_word(s, victim, word, candidates) : -1;
}

/* Claim a CPU that runs tier victim, in one zone. */
__noinline s32 claim_victim(struct task_struct *p __arg_trusted, struct search *s __arg_nonnull,
			    u32 victim, u32 zone)
{
	s32 cpu = -1;
	int word;

	s->zone = zone;
	if (nr_words == 1)
		return claim_victim_at(p, s, victim, 0);
	for_each_num(word, 0, TEMPER_MASK_WORDS) {
		if (word >= nr_words)
			break;
		cpu = claim_victim_at(p, s, victim, word);
		if (cpu >= 0)
			break;
	}
	return cpu;
}

/* Does no CPU that p may use run a tier below its own? On a node full of equals this answers. */
static __always_inline bool no_victim(const struct task_struct *p, u32 tier)
{
	u64 lower = 0;
	int victim;

	if (nr_words > 1)
		return false;
	for (victim = TEMPER_SYSTEM; victim < TEMPER_TIERS; victim++)
		if (may_preempt(tier, victim))
			lower |= *(volatile u64 *)&preemptible[victim].words[0];
	return !(lower & p->cpus_ptr->bits[0]);
}

/* Claims a CPU that runs a lower tier: as pick_victim says, or without at_once any. */
__noinline s32 find_victim(struct task_struct *p __arg_trusted, struct search *s __arg_nonnull)
{
	s32 prev = s->prev_word * 64 + s->prev_shift, cpu;
	int victim;

	/* The lowest tier runs where p's caches are warm, and p has no better place. */
	if (may_preempt(s->tier, TEMPER_BACKGROUND) &&
	    fence_of_cpu(s->generation, prev) == s->fence && may_run_on(p, prev) &&
	    (!s->at_once || can_preempt_now(prev)) && claim_cpu(s, TEMPER_BACKGROUND, prev))
		return prev;
	for (victim = TEMPER_BACKGROUND; victim > TEMPER_CRITICAL; victim--) {
		if (!may_preempt(s->tier, victim))
			break;
		if (p->nr_cpus_allowed == 1) {
			if (may_run_on(p, prev) && is_preemptible(victim, prev) &&
			    claim_cpu(s, victim, prev))
				return prev;
			continue;
		}
		if (s->fence) {
			cpu = claim_victim(p, s, victim, ZONE_OWN);
			if (cpu >= 0)
				return cpu;
		}
		cpu = claim_victim(p, s, victim, ZONE_OPEN);
		if (cpu >= 0)
			return cpu;
		if (!s->fences)
			continue;
		cpu = claim_victim(p, s, victim, ZONE_FENCED);
		if (cpu >= 0)
			return cpu;
	}
	return -1;
}

/*
 * Claims the CPU that this runs on, the last choice of those that can be preempted at once:
 * the interrupt that woke p ends there first, while another CPU switches.
 */
__noinline s32 claim_here(struct task_struct *p __arg_trusted, struct search *s __arg_nonnull)
{
	s32 cpu = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	u32 victim;

	if (!cctx || !may_run_on(p, cpu) || !can_preempt_here(cpu))
		return -1;
	victim = cctx->tier;
	if (victim >= TEMPER_TIERS || !may_preempt(s->tier, victim) ||
	    !is_preemptible(victim, cpu) || !claim_cpu(s, victim, cpu))
		return -1;
	return cpu;
}

/*
 * The CPU to preempt for p, claimed; -1 if none that runs a lower tier can be preempted at
 * once; s->late says whether one can later. The lowest tier goes first, wherever it runs:
 * reclaiming a lent CPU costs no more than taking an open one.
 */
static __always_inline s32 pick_victim(struct task_struct *p, struct search *s)
{
	s32 cpu;

	s->late = false;
	if (no_preempt || no_victim(p, s->tier))
		return -1;
	s->at_once = has_preempt_count && p->nr_cpus_allowed > 1;
	cpu = find_victim(p, s);
	return cpu < 0 && s->late ? claim_here(p, s) : cpu;
}

#endif
