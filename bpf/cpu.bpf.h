/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What each CPU is doing, as others need to know it.
 */
#ifndef TEMPER_CPU_BPF_H
#define TEMPER_CPU_BPF_H

/* Set by the loader before the load. */
const volatile u32 nr_cpus = 1; /* possible CPUs, at most TEMPER_MAX_CPUS */
const volatile u32 nr_words = 1; /* mask words that hold a possible CPU */
const volatile u32 nr_llcs = 1;
const volatile bool has_smt;
const volatile bool no_preempt; /* an ablation of the laboratory: wait for a slice to end */
const volatile bool has_task_work; /* programs can ask for one at a return to user mode */
const volatile bool has_preempt_count; /* programs can read that of any CPU */
const volatile bool prog_counts_itself; /* in migration_disabled of the running task */
const volatile bool inserts_lose_preempt; /* into another CPU's queue */
const volatile struct temper_cpu_topology topology[TEMPER_MAX_CPUS];
const volatile struct temper_mask llc_cpus[TEMPER_MAX_LLCS];

struct cpu_ctx {
	u32 tier; /* what runs here; TEMPER_NO_TIER if it cannot be preempted by us */
	u32 yields_in; /* the tier to whose peers it yields; TEMPER_NO_TIER if to none */
	u32 weight; /* of its group, if it yields */
	u64 tag; /* by which it was served then */
	u64 tag_at; /* and when */
	u64 seen[TEMPER_TIERS + 1]; /* insertions above a tier when this CPU looked last */
	u64 served[TEMPER_TIERS]; /* whose thread of a tier ran here last, or comes: its group_id */
	u64 met_at[TEMPER_TIERS]; /* when that changed last */
	u64 turn_at[TEMPER_TIERS]; /* when this CPU came to the tier by itself last */
	u64 asked_at[TEMPER_TIERS]; /* when it asked another LLC last who waits there */
	u32 asks[TEMPER_TIERS]; /* and how often it did */
	u64 rescues_since; /* the rescue queue was not empty since then */
	u64 rescued_at; /* a starving task was served here last */
	u32 rescues; /* tasks in this CPU's rescue queue */
	u32 bound_tier; /* the highest of those, if any; a kernel thread's counts as critical */
	bool bound_waits; /* in this CPU's own queue, most likely: tasks that may run nowhere else */
	bool bound_turns; /* the last of those, a kernel thread, has had a slice, and others wait */
	bool released; /* it was critical and no longer is: others may be let in */
	bool releases; /* cpu_release is at work: programs called by the kernel meanwhile nest */
	bool fetched_idle; /* what runs next was fetched from a queue by the idle CPU */
} __attribute__((aligned(64)));

/*
 * CPU -> struct cpu_ctx. Written by the CPU itself under its runqueue lock, served and
 * met_at also by who comes. Any CPU reads tier and met_at, and may see them a moment late.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TEMPER_MAX_CPUS);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpu_ctxs SEC(".maps");

/*
 * Per tier below critical: the CPUs that run it and may be taken by preemption.
 * A bit is set by running and cleared by stopping; a waker that clears it first
 * owns the right to preempt that CPU. dispatch sets it again when the kernel
 * kept the task: the claim would leak otherwise.
 */
static struct temper_mask preemptible[TEMPER_TIERS] __attribute__((aligned(64)));

/*
 * Per tier: the CPUs whose thread ran so long that it yields to peers (peer.bpf.h).
 * Set and cleared like those above.
 */
static struct temper_mask yielding[TEMPER_TIERS] __attribute__((aligned(64)));

/*
 * The CPUs that serve queues. Written by init and hotplug, read by the rescue:
 * affinities still name CPUs that went offline.
 */
static struct temper_mask online __attribute__((aligned(64)));
static u32 nr_online;

static __always_inline struct cpu_ctx *try_lookup_cpu(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpu_ctxs, &key);
}

/* What runs on cpu yields it to no task of this tier. Of a CPU whose lock is held. */
static __always_inline bool is_kept(s32 cpu, u32 tier, bool wakes)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);

	return cctx && cctx->tier <= tier && !(wakes && cctx->yields_in == tier);
}

static __always_inline u32 cpu_llc(s32 cpu)
{
	return (u32)cpu < TEMPER_MAX_CPUS ? topology[cpu].llc : 0;
}

static __always_inline s32 next_sibling(s32 cpu)
{
	one_copy(cpu);
	return (u32)cpu < TEMPER_MAX_CPUS ? topology[cpu].next_sibling : cpu;
}

/* The other threads of cpu's core: at most 8 share one on any machine we know. */
#define for_each_sibling(sibling, cpu, i)                                           \
	for ((i) = 0, (sibling) = next_sibling(cpu); (i) < 8 && (sibling) != (cpu); \
	     (i)++, (sibling) = next_sibling(sibling))

static __always_inline u64 cpu_bit(s32 cpu)
{
	return 1ULL << (cpu & 63);
}

static __always_inline u64 *tier_word(struct temper_mask *masks, u32 tier, s32 cpu)
{
	u32 word = (u32)cpu / 64;

	one_copy(tier);
	one_copy(word);
	if (tier >= TEMPER_TIERS || word >= TEMPER_MASK_WORDS)
		return NULL;
	return &masks[tier].words[word];
}

static __always_inline u64 *preemptible_word(u32 tier, s32 cpu)
{
	return tier_word(preemptible, tier, cpu);
}

static __always_inline void set_cpu(u64 *word, s32 cpu)
{
	if (word)
		__sync_fetch_and_or(word, cpu_bit(cpu));
}

/* Returns whether the bit was set: of several callers one gets true. */
static __always_inline bool clear_cpu(u64 *word, s32 cpu)
{
	return word && (__sync_fetch_and_and(word, ~cpu_bit(cpu)) & cpu_bit(cpu));
}

static __always_inline void set_preemptible(u32 tier, s32 cpu)
{
	set_cpu(preemptible_word(tier, cpu), cpu);
}

static __always_inline bool clear_preemptible(u32 tier, s32 cpu)
{
	return clear_cpu(preemptible_word(tier, cpu), cpu);
}

static __always_inline bool is_preemptible(u32 tier, s32 cpu)
{
	u64 *word = preemptible_word(tier, cpu);

	return word && (*(volatile u64 *)word & cpu_bit(cpu));
}

static __always_inline void mask_add(struct temper_mask *mask, s32 cpu)
{
	u32 word = (u32)cpu / 64;

	one_copy(word);
	if (word < TEMPER_MASK_WORDS)
		mask->words[word] |= cpu_bit(cpu);
}

static __always_inline bool mask_has(const struct temper_mask *mask, s32 cpu)
{
	u32 word = (u32)cpu / 64;

	return word < TEMPER_MASK_WORDS && (mask->words[word] & cpu_bit(cpu));
}

static __always_inline void set_online(s32 cpu, bool is_online)
{
	u32 word = (u32)cpu / 64;

	one_copy(word);
	if (word >= TEMPER_MASK_WORDS)
		return;
	if (is_online) {
		if (!(__sync_fetch_and_or(&online.words[word], cpu_bit(cpu)) & cpu_bit(cpu)))
			__sync_fetch_and_add(&nr_online, 1);
	} else if (__sync_fetch_and_and(&online.words[word], ~cpu_bit(cpu)) & cpu_bit(cpu)) {
		__sync_fetch_and_sub(&nr_online, 1);
	}
}

/*
 * On none of the CPUs that p may use did groups of the tier meet for long. Never for p
 * that may run everywhere: where others are bound, the rest of the node is what it has
 * instead. Looks at p's own CPU first: where CPUs are shared, that one tells.
 */
__noinline int has_own_cpus(struct task_struct *p __arg_trusted, u32 tier)
{
	u32 allowed = p->nr_cpus_allowed, first = scx_bpf_task_cpu(p);
	u64 now = scx_bpf_now();
	int i;

	one_copy(tier);
	if (tier >= TEMPER_TIERS || allowed >= nr_online)
		return 0;
	for_each_num(i, 0, TEMPER_MAX_CPUS) {
		struct cpu_ctx *cctx;
		u32 cpu = first + i;

		if (i >= nr_cpus || !allowed)
			break;
		if (cpu >= nr_cpus)
			cpu -= nr_cpus;
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		allowed--;
		cctx = try_lookup_cpu(cpu);
		if (!cctx || !is_alone(cctx->met_at[tier], now))
			return 0;
	}
	return 1;
}

/* Whether another thread of cpu's core runs a critical task. */
__noinline int sibling_is_critical(s32 cpu)
{
	s32 sibling;
	int i;

	if (!has_smt)
		return false;
	for_each_sibling(sibling, cpu, i) {
		struct cpu_ctx *cctx = try_lookup_cpu(sibling);

		if (cctx && cctx->tier == TEMPER_CRITICAL)
			return true;
	}
	return false;
}

/*
 * A kernel with next_class takes the move from a queue into an idle CPU for a
 * wakeup that has just set the clock, and does not set it at the next switch: it
 * would book the CPU time of what runs now on what runs then. Scheduled once
 * more at once, the CPU loses the request instead (docs/known-issues.md).
 */
static __always_inline void mend_clock(struct cpu_ctx *cctx, s32 cpu)
{
	if (!cctx->fetched_idle)
		return;
	cctx->fetched_idle = false;
	if (bpf_core_field_exists(((struct rq___next *)0)->next_class))
		scx_bpf_kick_cpu(cpu, 0);
}

#endif
