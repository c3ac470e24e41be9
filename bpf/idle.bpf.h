/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where to run: the search for an idle CPU (victim.bpf.h: for one to take by preemption).
 *
 * Masks are read a word of 64 CPUs at a time. The idle mask is the kernel's;
 * who clears a CPU's bit in it (test_and_clear) owns that CPU.
 */
#ifndef TEMPER_IDLE_BPF_H
#define TEMPER_IDLE_BPF_H

/* Which CPUs a search may look at, with respect to fences. */
enum zone {
	ZONE_OWN, /* the task's own fence */
	ZONE_OPEN, /* CPUs in no fence */
	ZONE_FENCED, /* CPUs in any fence: lent */
};

/* Each try drops a candidate, and a word has no more. */
#define MAX_CLAIMS 64

struct search {
	u64 generation;
	u32 tier;
	u32 fence;
	u32 lend;
	u32 fences; /* how many the plan has */
	u32 zone;
	u32 llc;
	u32 prev_word;
	u32 prev_shift;
	u64 prev_bit;
	bool apart; /* no idle CPU beside a critical thread on its core */
	bool at_once; /* only CPUs that can be preempted at the moment */
	bool late; /* there were others, which can later */
};

/*
 * Find the first set bit, which BPF has no instruction for: a de Bruijn
 * sequence has each six-bit pattern once, so that the product's top six bits
 * tell the shifts apart. No branches: the verifier would walk them all.
 */
#define DE_BRUIJN 0x022fdd63cc95386dULL

static const u8 de_bruijn_bit[64] = {
	0,  1,  2,  53, 3,  7,  54, 27, 4,  38, 41, 8,  34, 55, 48, 28, 62, 5,  39, 46, 44, 42,
	22, 9,  24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

static __always_inline u32 lowest_bit(u64 bits)
{
	u64 i = ((bits & -bits) * DE_BRUIJN) >> 58;

	one_copy(i);
	return de_bruijn_bit[i & 63];
}

static __always_inline u64 llc_word(u32 llc, u32 word)
{
	if (llc >= TEMPER_MAX_LLCS || word >= TEMPER_MASK_WORDS)
		return 0;
	return llc_cpus[llc].words[word];
}

static __always_inline u64 zone_word(const struct search *s, u32 word)
{
	struct temper_plan_head *head;
	struct temper_mask *fence;

	if (word >= TEMPER_MASK_WORDS)
		return 0;
	if (s->zone == ZONE_OWN) {
		fence = plan_fence(s->generation, s->fence);
		return fence ? fence->words[word] : 0;
	}
	head = plan_head(s->generation);
	if (!head)
		return s->zone == ZONE_OPEN ? ~0ULL : 0;
	return s->zone == ZONE_OPEN ? ~head->fenced.words[word] : head->fenced.words[word];
}

/* Constant word numbers only: the verifier refuses variable offsets into kernel types. */
static __always_inline u64 mask_word(const struct cpumask *mask, u32 word)
{
	switch (word) {
	case 0:
		return mask->bits[0];
	case 1:
		return mask->bits[1];
	case 2:
		return mask->bits[2];
	case 3:
		return mask->bits[3];
	case 4:
		return mask->bits[4];
	case 5:
		return mask->bits[5];
	case 6:
		return mask->bits[6];
	case 7:
		return mask->bits[7];
	default:
		return 0;
	}
}

static __always_inline bool may_run_on(const struct task_struct *p, s32 cpu)
{
	return mask_word(p->cpus_ptr, (u32)cpu / 64) & cpu_bit(cpu);
}

static __always_inline bool is_online(s32 cpu)
{
	const struct cpumask *mask = scx_bpf_get_online_cpumask();
	bool online = mask_word(mask, (u32)cpu / 64) & cpu_bit(cpu);

	scx_bpf_put_cpumask(mask);
	return online;
}

/* Is cpu idle, and not claimed by a waker? */
static __always_inline bool is_idle(s32 cpu)
{
	const struct cpumask *mask = scx_bpf_get_idle_cpumask();
	bool idle = mask_word(mask, (u32)cpu / 64) & cpu_bit(cpu);

	scx_bpf_put_idle_cpumask(mask);
	return idle;
}

/* The CPUs that run a tier below critical and are not claimed. */
static __always_inline u64 lower_word(u32 word)
{
	word &= TEMPER_MASK_WORDS - 1;
	return preemptible[TEMPER_SYSTEM].words[word] | preemptible[TEMPER_STANDARD].words[word] |
	       preemptible[TEMPER_BACKGROUND].words[word];
}

/*
 * Is fence busy, and would a CPU other than cpu stay idle in it? Idle bits and
 * preemptible bits are read without a lock: a wrong answer lends one CPU for as
 * long as a reclaim takes.
 */
__noinline int fence_use(u64 generation, s32 cpu)
{
	const struct cpumask *idle, *cores;
	struct temper_mask *fence;
	u64 busy = 0, spare = 0;
	u32 id = fence_of_cpu(generation, cpu);
	struct temper_mask own_core = {};
	s32 sibling;
	int word, i;

	fence = plan_fence(generation, id);
	if (!id || !fence)
		return 0;
	/* The threads of cpu's core: they are lent together with it. */
	mask_add(&own_core, cpu);
	for_each_sibling(sibling, cpu, i)
		mask_add(&own_core, sibling);
	idle = scx_bpf_get_idle_cpumask();
	cores = scx_bpf_get_idle_smtmask();
	for_each_num(word, 0, TEMPER_MASK_WORDS) {
		u64 members, own;

		if (word >= nr_words)
			break;
		members = fence->words[word];
		if (!members)
			continue;
		own = own_core.words[word & (TEMPER_MASK_WORDS - 1)];
		spare |= members & mask_word(cores, word) & ~own;
		if (word == (u32)cpu / 64)
			members &= ~cpu_bit(cpu);
		busy |= members & ~mask_word(idle, word) & ~lower_word(word);
	}
	scx_bpf_put_idle_cpumask(idle);
	scx_bpf_put_idle_cpumask(cores);
	return !!busy | !!spare << 1;
}

/*
 * p runs outside of its fence, which was full. Is there a CPU for it by now, that
 * pick_idle or pick_victim would choose? Else it stays where it is for as long as
 * it does not sleep, and its fence, idle, is lent.
 */
__noinline int fence_has_room(struct task_struct *p __arg_trusted, u64 generation, u32 id)
{
	struct temper_mask *fence = plan_fence(generation, id);
	u64 room = 0, higher = 0, background = 0;
	const struct cpumask *idle;
	int word;

	if (!id || !fence)
		return 0;
	idle = scx_bpf_get_idle_cpumask();
	for_each_num(word, 0, TEMPER_MASK_WORDS) {
		u64 mine, lowest;

		if (word >= nr_words)
			break;
		mine = fence->words[word] & mask_word(p->cpus_ptr, word);
		lowest = preemptible[TEMPER_BACKGROUND].words[word & (TEMPER_MASK_WORDS - 1)];
		room |= mine & (mask_word(idle, word) | lowest);
		higher |= mine & lower_word(word);
		background |= lowest & mask_word(p->cpus_ptr, word);
	}
	scx_bpf_put_idle_cpumask(idle);
	return room || (higher && !background);
}

/* verifier: not inlined, walked once in a program instead of in each search. */
__noinline int may_serve_lower(u64 generation, u32 lend, u32 tier, s32 cpu)
{
	int use;

	if (has_smt && tier == TEMPER_BACKGROUND && !may_share_core(tier, sibling_is_critical(cpu)))
		return false;
	if (lend == TEMPER_LEND_PER_CORE || !fence_of_cpu(generation, cpu))
		return true;
	use = fence_use(generation, cpu);
	return may_lend(lend, use & 1, use & 2);
}

/* May a task of this tier be served on cpu now? Critical may be anywhere. */
static __always_inline bool may_serve(u64 generation, u32 lend, u32 tier, s32 cpu)
{
	return tier == TEMPER_CRITICAL || may_serve_lower(generation, lend, tier, cpu);
}

/* Claim a CPU that is idle, or that runs tier victim; TEMPER_NO_TIER means idle. */
static __always_inline bool claim_cpu(const struct search *s, u32 victim, s32 cpu)
{
	if (!may_serve(s->generation, s->lend, s->tier, cpu))
		return false;
	if (victim == TEMPER_NO_TIER)
		return !(s->apart && sibling_is_critical(cpu)) &&
		       scx_bpf_test_and_clear_cpu_idle(cpu);
	return clear_preemptible(victim, cpu);
}

/* The previous CPU if it is a candidate: its caches are warm. Else the lowest. */
static __always_inline s32 first_candidate(const struct search *s, u32 word, u64 candidates)
{
	if (word == s->prev_word && (candidates & s->prev_bit))
		return word * 64 + s->prev_shift;
	return word * 64 + lowest_bit(candidates);
}

/* Claim one CPU of candidates, a word of a mask: as claim_cpu. */
static __always_inline s32 claim_in_word(const struct search *s, u32 victim, u32 word,
					 u64 candidates)
{
	s32 cpu = first_candidate(s, word, candidates);
	int i;

	/* The first is it, but for a race. */
	if (claim_cpu(s, victim, cpu))
		return cpu;
	candidates &= ~cpu_bit(cpu);
	if (!candidates)
		return -1;
	for_each_num(i, 1, MAX_CLAIMS) {
		if (!candidates)
			break;
		cpu = first_candidate(s, word, candidates);
		if (claim_cpu(s, victim, cpu))
			return cpu;
		candidates &= ~cpu_bit(cpu);
	}
	return -1;
}

static __always_inline s32 claim_idle_at(const struct task_struct *p, const struct search *s,
					 const struct cpumask *idle, u32 word, bool llc)
{
	u64 candidates = mask_word(idle, word);

	if (!candidates)
		return -1;
	candidates &= mask_word(p->cpus_ptr, word) & zone_word(s, word);
	if (llc)
		candidates &= llc_word(s->llc, word);
	return candidates ? claim_in_word(s, TEMPER_NO_TIER, word, candidates) : -1;
}

/*
 * One pass over the idle mask: whole cores or any CPU, one LLC or all. Up to 64
 * CPUs there is one word, and a loop's iterator would cost a hundred instructions.
 */
__noinline s32 claim_idle(struct task_struct *p __arg_trusted, struct search *s __arg_nonnull,
			  bool cores, bool llc)
{
	const struct cpumask *idle;
	s32 cpu = -1;
	int word;

	idle = cores ? scx_bpf_get_idle_smtmask() : scx_bpf_get_idle_cpumask();
	if (nr_words == 1) {
		cpu = claim_idle_at(p, s, idle, 0, llc);
		scx_bpf_put_idle_cpumask(idle);
		return cpu;
	}
	for_each_num(word, 0, TEMPER_MASK_WORDS) {
		if (word >= nr_words)
			break;
		cpu = claim_idle_at(p, s, idle, word, llc);
		if (cpu >= 0)
			break;
	}
	scx_bpf_put_idle_cpumask(idle);
	return cpu;
}

/* Is no CPU idle that p may use? On a full node this answers most searches. */
static __always_inline bool none_idle(const struct task_struct *p)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool none = true;
	int word;

	if (nr_words == 1) {
		none = !(idle->bits[0] & p->cpus_ptr->bits[0]);
		scx_bpf_put_idle_cpumask(idle);
		return none;
	}
	for_each_num(word, 0, TEMPER_MASK_WORDS) {
		if (word >= nr_words)
			break;
		none = !(mask_word(idle, word) & mask_word(p->cpus_ptr, word));
		if (!none)
			break;
	}
	scx_bpf_put_idle_cpumask(idle);
	return none;
}

static __always_inline s32 claim_idle_in_zone(struct task_struct *p, struct search *s, u32 zone)
{
	s32 cpu;

	s->zone = zone;
	if (has_smt) {
		if (nr_llcs > 1) {
			cpu = claim_idle(p, s, true, true);
			if (cpu >= 0)
				return cpu;
		}
		cpu = claim_idle(p, s, true, false);
		if (cpu >= 0)
			return cpu;
	}
	if (nr_llcs > 1) {
		cpu = claim_idle(p, s, false, true);
		if (cpu >= 0)
			return cpu;
	}
	return claim_idle(p, s, false, false);
}

static __always_inline void begin_search(struct search *s, const struct task_ctx *tctx,
					 s32 prev_cpu)
{
	struct temper_plan_head *head = plan_head(tctx->generation);

	s->generation = tctx->generation;
	s->tier = tctx->tier;
	s->fence = tctx->fence;
	s->lend = head ? head->lend : TEMPER_LEND_PER_CORE;
	s->apart = false;
	s->fences = head ? head->nr_fences : 0;
	s->prev_word = (u32)prev_cpu / 64;
	s->prev_shift = prev_cpu & 63;
	s->prev_bit = cpu_bit(prev_cpu);
	s->llc = cpu_llc(prev_cpu);
}

/* Does background run on a CPU of s's fence that p may use? */
static __always_inline bool lends_own_fence(const struct task_struct *p, const struct search *s)
{
	struct temper_mask *fence = plan_fence(s->generation, s->fence);
	u64 lent = 0;
	int word;

	if (!fence)
		return false;
	for_each_num(word, 0, TEMPER_MASK_WORDS) {
		if (word >= nr_words)
			break;
		lent |= fence->words[word] & mask_word(p->cpus_ptr, word) &
			preemptible[TEMPER_BACKGROUND].words[word & (TEMPER_MASK_WORDS - 1)];
	}
	return lent;
}

/*
 * The best idle CPU that p may use, taken out of the idle mask; -1 if there is
 * none. A fence first, then CPUs of no fence, then what other fences lend.
 * Apart: beside a critical thread on its core only in a fence of its own that
 * lends nothing: half a core is worth less than a CPU that background gives up.
 *
 * Most wakeups find the previous CPU idle and need no search. With SMT a whole
 * idle core is better, so that the masks have to be read.
 */
__noinline s32 pick_idle(struct task_struct *p __arg_trusted, struct search *s __arg_nonnull)
{
	s32 prev = s->prev_word * 64 + s->prev_shift, cpu;

	if (p->nr_cpus_allowed == 1)
		return may_run_on(p, prev) && claim_cpu(s, TEMPER_NO_TIER, prev) ? prev : -1;
	/* A CPU that runs background is not idle: on a full node the one look below does. */
	if (!has_smt && !is_preemptible(TEMPER_BACKGROUND, prev) &&
	    fence_of_cpu(s->generation, prev) == s->fence && may_run_on(p, prev) &&
	    claim_cpu(s, TEMPER_NO_TIER, prev))
		return prev;
	if (none_idle(p))
		return -1;
	if (s->fence) {
		cpu = claim_idle_in_zone(p, s, ZONE_OWN);
		if (cpu >= 0)
			return cpu;
		if (s->apart && !lends_own_fence(p, s)) {
			s->apart = false;
			cpu = claim_idle(p, s, false, false);
			s->apart = true;
			if (cpu >= 0)
				return cpu;
		}
	}
	cpu = claim_idle_in_zone(p, s, ZONE_OPEN);
	if (cpu >= 0 || !s->fences)
		return cpu;
	return claim_idle_in_zone(p, s, ZONE_FENCED);
}

#endif
