/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which CPUs the tasks in a tier's queues may run on. The kernel walks a queue until it finds
 * a task that may run on the CPU that asks, with interrupts off and the queue's lock held: a
 * CPU that none of them may use, of a pod with CPUs of its own, would walk past all of them
 * whenever its thread sleeps, and thousands of threads that a pod binds to one CPU would hold
 * up all the others.
 */
#ifndef TEMPER_WANTED_BPF_H
#define TEMPER_WANTED_BPF_H

/*
 * Two halves: one counts, the other will. Whoever queues is added to both before it is
 * inserted, and a pass of the timer adds whoever it finds queued. By turns one pass empties
 * the half that does not count, and the next that comes a period later has it count. So a CPU
 * may stay in it for some periods too long; it is never missing while somebody waits for it.
 */
#define WANTED_HALVES 2

static struct temper_mask wanted[WANTED_HALVES * TEMPER_TIERS] __attribute__((aligned(64)));
static u32 wanted_half;
static u64 wanted_changed_at;
static bool wanted_emptied;

static __always_inline u64 *wanted_word(u32 half, u32 tier, u32 word)
{
	u32 i = half * TEMPER_TIERS + tier;

	one_copy(i);
	one_copy(word);
	if (i >= WANTED_HALVES * TEMPER_TIERS || word >= TEMPER_MASK_WORDS)
		return NULL;
	return &wanted[i].words[word];
}

static __always_inline void want_in_word(u32 tier, u32 word, u64 cpus)
{
	u64 *w;
	u32 half;

	for (half = 0; half < WANTED_HALVES; half++) {
		w = wanted_word(half, tier, word);
		if (w && cpus & ~*(volatile u64 *)w)
			__sync_fetch_and_or(w, cpus);
	}
}

/* p is about to be inserted into a queue of this tier. verifier: walked once in a program. */
__noinline int want_cpus(struct task_struct *p __arg_trusted, u32 tier)
{
	int word;

	for (word = 0; word < TEMPER_MASK_WORDS && word < nr_words; word++)
		want_in_word(tier, word, mask_word(p->cpus_ptr, word));
	return 0;
}

/* Nothing would change: most often so, and cheaper than the call. */
static __always_inline bool are_wanted(const struct task_struct *p, u32 tier)
{
	const u64 *w = wanted_word(0, tier, 0), *other = wanted_word(1, tier, 0);

	return nr_words == 1 && w && other &&
	       !(p->cpus_ptr->bits[0] & ~(*(volatile const u64 *)w & *(volatile const u64 *)other));
}

/* A queue too long to be walked: whoever waits there may want any. */
__noinline int want_all_cpus(u32 tier)
{
	int word;

	for (word = 0; word < TEMPER_MASK_WORDS; word++)
		want_in_word(tier, word, ~0ULL);
	return 0;
}

/*
 * May a task in a queue of this tier run on cpu? If not, nobody waits for it there.
 * verifier: bounds without a branch, as each would be walked for each tier of each program.
 */
static __always_inline bool is_wanted(u32 tier, s32 cpu)
{
	u32 i = *(volatile u32 *)&wanted_half * TEMPER_TIERS + tier;
	u32 word = (u32)cpu / 64 & (TEMPER_MASK_WORDS - 1);
	const struct temper_mask *cpus = &wanted[i & (WANTED_HALVES * TEMPER_TIERS - 1)];

	return *(volatile const u64 *)&cpus->words[word] & cpu_bit(cpu);
}

/* Words that no affinity reaches, of CPUs that come after the attach, stay as they are here. */
static __always_inline void init_wanted(void)
{
	u32 tier;

	for (tier = 0; tier < TEMPER_TIERS; tier++)
		want_all_cpus(tier);
}

/* The timer has walked the queues. */
__noinline int renew_wanted(u64 now)
{
	u32 other = 1 - wanted_half, tier, word;
	u64 *w;

	if (elapsed(wanted_changed_at, now) < (s64)RESCUE_PERIOD_NS)
		return 0;
	wanted_changed_at = now;
	wanted_emptied = !wanted_emptied;
	if (!wanted_emptied) {
		wanted_half = other;
		return 0;
	}
	for (tier = 0; tier < TEMPER_TIERS; tier++)
		for (word = 0; word < TEMPER_MASK_WORDS && word < nr_words; word++) {
			w = wanted_word(other, tier, word);
			if (w)
				*(volatile u64 *)w = 0;
		}
	return 0;
}

#endif
