/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queues of the tiers: in, out, and who waits.
 */
#ifndef TEMPER_QUEUE_BPF_H
#define TEMPER_QUEUE_BPF_H

/*
 * Counts insertions, per tier. A CPU that begins to run a lower tier, or idles,
 * compares it with what it saw last: a difference means that somebody queued in
 * between and may have seen no victim.
 */
static u64 queued_seq[TEMPER_TIERS] __attribute__((aligned(64)));

/* When a task of the tier left its queue last, for whichever CPU. */
static u64 served_at[TEMPER_TIERS] __attribute__((aligned(64)));
/* And one to whom the CPU came by itself: nobody rescued it, or nobody else was there. */
static u64 turn_at[TEMPER_TIERS] __attribute__((aligned(64)));

static __always_inline bool anybody_waits(void)
{
	int i;

	for (i = 0; i < TEMPER_TIERS; i++)
		if (queued_in(i))
			return true;
	return false;
}

/* Somebody of the tier waits who may run on cpu. */
static __always_inline bool waits_for(u32 tier, s32 cpu)
{
	return queued_in(tier) && is_wanted(tier, cpu);
}

/* Or of a tier above this one. verifier: walked once in a program. */
__noinline bool higher_waits(u32 tier, s32 cpu)
{
	int i;

	for (i = 0; i < TEMPER_TIERS; i++)
		if (i < tier && waits_for(i, cpu))
			return true;
	return false;
}

static __always_inline void count_insertion(u32 tier)
{
	u64 before;

	one_copy(tier);
	if (tier >= TEMPER_TIERS)
		return;
	/* Unless its result is used this is no barrier, where the CPU needs one to be told. */
	before = __sync_fetch_and_add(&queued_seq[tier], 1);
	one_copy(before);
}

/* Somebody who outranks tier queued since cctx's CPU looked last, and still waits. */
static __always_inline bool is_overtaken(struct cpu_ctx *cctx, u32 tier, s32 cpu)
{
	u64 seq = 0;
	int i;

	one_copy(tier);
	if (tier > TEMPER_TIERS)
		return false;
	for (i = 0; i < TEMPER_TIERS; i++)
		if (i < tier)
			seq += *(volatile u64 *)&queued_seq[i];
	if (seq == cctx->seen[tier])
		return false;
	cctx->seen[tier] = seq;
	return higher_waits(tier, cpu);
}

/*
 * A rescued task that is owed its turn goes before whoever waits in a higher tier, and its
 * CPU may have seen them already: it was about to fetch one. Once: the kick ends the turn.
 */
static __always_inline bool has_overtaken(const struct task_ctx *tctx, u32 tier, s32 cpu)
{
	return tctx->owed == OWED_TURN && higher_waits(tier, cpu);
}

/*
 * Since when a task is queued, with its queue's tier in the lowest bits. One word:
 * a plan, the rescue and the CPU that fetches the task may meet, and whoever changes
 * the word counts out what it finds.
 */
#define QUEUED_TIER 3ULL
_Static_assert(TEMPER_TIERS <= QUEUED_TIER + 1, "a tier's number fits");

static __always_inline u32 queued_tier(u64 queued)
{
	return queued & QUEUED_TIER;
}

static __always_inline u64 queued_at(u64 queued)
{
	return queued & ~QUEUED_TIER;
}

/* verifier: apart, because 6.18 cannot follow an index back to an exchange. */
__noinline int count_out(u64 queued)
{
	u32 tier = queued_tier(queued);

	one_copy(tier);
	if (tier < TEMPER_TIERS)
		__sync_fetch_and_sub(&nr_queued[tier], 1);
	return 0;
}

static __always_inline void count_queued(struct task_ctx *tctx, u32 tier, u64 now)
{
	u64 before;

	one_copy(tier);
	if (tier >= TEMPER_TIERS)
		return;
	/* First in, then out: the count is never too low. */
	__sync_fetch_and_add(&nr_queued[tier], 1);
	before = __sync_lock_test_and_set(&tctx->queued, queued_at(now) | tier);
	if (before)
		count_out(before);
}

/* Returns what it was queued by; 0: it was not. */
static __always_inline u64 uncount_queued(struct task_ctx *tctx)
{
	u64 queued;

	if (!tctx->queued)
		return 0;
	queued = __sync_lock_test_and_set(&tctx->queued, 0);
	if (queued)
		count_out(queued);
	return queued;
}

/*
 * A task runs; false: out of turn. A rescued one is owed no slice where nobody higher waits,
 * and nobody higher keeps this CPU from its tier: it would be sent away at once (publish).
 */
static __always_inline bool take_a_turn(struct task_ctx *tctx, s32 cpu)
{
	u64 generation = tctx->generation;

	if (!tctx->owed)
		return true;
	if (higher_waits(tctx->tier, cpu) ||
	    !may_serve(generation, plan_lend(generation), tctx->tier, cpu))
		return false;
	tctx->owed = OWED_TURN;
	return true;
}

/* A task runs on a CPU: its tier was served. */
static __always_inline u64 left_queue(struct task_ctx *tctx, struct cpu_ctx *cctx, s32 cpu, u64 now)
{
	u64 queued = uncount_queued(tctx);
	bool turn = take_a_turn(tctx, cpu);
	u32 tier = queued_tier(queued);

	one_copy(tier);
	if (!queued || tier >= TEMPER_TIERS)
		return 0;
	served_at[tier] = now;
	if (turn)
		turn_at[tier] = cctx->turn_at[tier] = now;
	return queued;
}

/* While a thread slept, or when it was preempted, another group came to its CPU: they meet. */
static __always_inline void find_company(struct task_ctx *tctx, u32 tier, s32 cpu)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	struct group_ctx *group;
	u64 now;

	one_copy(tier);
	if (!cctx || tier >= TEMPER_TIERS || !cctx->served[tier] ||
	    cctx->served[tier] == tctx->group_id)
		return;
	group = task_group(tctx);
	now = scx_bpf_now();
	if (group && is_alone(group->met_at, now))
		meet(group, tier, now);
}

/* Queue p by its group's clock. */
static __always_inline void queue_task(struct task_struct *p, struct task_ctx *tctx, u64 enq_flags)
{
	u64 queued = *(volatile u64 *)&tctx->queued, vtime;
	s32 cpu = scx_bpf_task_cpu(p);
	u32 tier = tctx->tier;

	if (tier >= TEMPER_TIERS)
		return;
	find_company(tctx, tier, cpu);
	vtime = charge_slice(tctx, enq_flags & SCX_ENQ_WAKEUP);
	if (!are_wanted(p, tier))
		want_cpus(p, tier);
	/* It may have been taken out of a queue without running. */
	if (!queued || queued_tier(queued) != tier)
		count_queued(tctx, tier, scx_bpf_now());
	scx_bpf_dsq_insert_vtime(p, tier_dsq(tier, cpu_llc(cpu)), SLICE_NS, vtime, enq_flags);
}

/*
 * Puts p into a CPU's own queue, from enqueue. If that is another CPU, the kernel
 * does so after enqueue, and may lose SCX_ENQ_PREEMPT on the way: p would wait
 * for a slice of what runs there. The kick is carried out after the insertion.
 */
static __always_inline void insert_on(struct task_struct *p, s32 cpu, u64 enq_flags)
{
	dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, SLICE_NS, enq_flags);
	if (inserts_lose_preempt && (enq_flags & SCX_ENQ_PREEMPT) && cpu != scx_bpf_task_cpu(p))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * p is queued: a CPU that is idle, or runs a lower tier, comes for it. Where none can come at
 * once several are called, and the first that can takes p: of a softirq and an interrupt
 * nobody knows which ends first.
 */
static __always_inline void call_cpu_near(struct task_struct *p, struct task_ctx *tctx,
					  s32 prev_cpu)
{
	struct search s;
	s32 cpu;
	int i;

	begin_search(&s, tctx, prev_cpu);
	cpu = pick_idle(p, &s);
	if (cpu >= 0) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	cpu = pick_victim(p, &s);
	if (cpu >= 0) {
		count_preemption(s.tier);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	if (!s.late)
		return;
	count_preemption(s.tier);
	s.at_once = false;
	for_each_num(i, 0, MAX_AT_ONCE) {
		cpu = find_victim(p, &s);
		if (cpu < 0)
			break;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

/* verifier: not inlined, walked once in a program instead of for each thread of a queue. */
__noinline int call_cpu(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = try_lookup_task(p);

	if (tctx)
		call_cpu_near(p, tctx, scx_bpf_task_cpu(p));
	return 0;
}

/* A long line of tasks that are bound elsewhere is rare, and each look takes the queue's lock. */
#define DUE_MAX_LOOKS 32
#define DUE_MAX_LOOKS_ELSEWHERE 8 /* in each other LLC's queue, and from the timer */

static __always_inline bool is_of_group(struct task_struct *p, u64 group)
{
	struct task_ctx *tctx = group ? try_lookup_task(p) : NULL;

	return tctx && tctx->group_id == group;
}

enum due {
	NOT_DUE,
	DUE,
	MAYBE_DUE, /* behind a long line of tasks that may not run there */
};

/*
 * Is the first task of a queue that may run on cpu due before tag, and not of this
 * group (0: whosever it is)? Also called from programs that may sleep, where nothing
 * else holds the RCU lock.
 */
__noinline int is_due_before(u64 dsq, s32 cpu, u64 tag, u64 but, u32 looks)
{
	struct bpf_iter_scx_dsq it;
	int due = MAYBE_DUE, i;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	for_each_num(i, 0, looks) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);

		if (!p || !vtime_before(p->scx.dsq_vtime, tag)) {
			due = NOT_DUE;
			break;
		}
		if (may_run_on(p, cpu)) {
			due = is_of_group(p, but) ? NOT_DUE : DUE;
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return due;
}

/*
 * The tag of the first task of a queue that may run on cpu, none without one. away: as it
 * counts in other LLCs.
 */
__noinline u64 first_tag(u64 dsq, s32 cpu, u64 none, u32 away)
{
	struct bpf_iter_scx_dsq it;
	u64 tag = none;
	int i;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	for_each_num(i, 0, DUE_MAX_LOOKS_ELSEWHERE) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);
		struct task_ctx *tctx;
		struct group_ctx *group;

		if (!p)
			break;
		if (!may_run_on(p, cpu))
			continue;
		tctx = away ? try_lookup_task(p) : NULL;
		group = tctx ? task_group(tctx) : NULL;
		tag = p->scx.dsq_vtime;
		if (away)
			tag = away_tag(tag, group ? group->weight : DEFAULT_WEIGHT);
		break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return tag;
}

/* The tag of a queue's first task, none without one. */
__noinline u64 head_tag(u64 dsq, u64 none)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u64 tag = none;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	p = bpf_iter_scx_dsq_next(&it);
	if (p)
		tag = p->scx.dsq_vtime;
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return tag;
}

/*
 * Another LLC in whose queue somebody waits who is due long before all of cpu's own LLC, or
 * -1. Weights are the tier's, not an LLC's: where peers of a group that has its share always
 * wait, its CPUs would never help those that wait elsewhere. One LLC is asked at a time,
 * once a slice: the locks of its queues are its CPUs'.
 */
static __always_inline s32 llc_behind(u32 tier, s32 cpu)
{
	u32 own = cpu_llc(cpu), llc;
	struct cpu_ctx *cctx;
	u64 now, tag;

	one_copy(tier);
	if (nr_llcs == 1 || tier >= TEMPER_TIERS)
		return -1;
	cctx = try_lookup_cpu(cpu);
	now = scx_bpf_now();
	if (!cctx || elapsed(cctx->asked_at[tier], now) < (s64)SLICE_NS)
		return -1;
	cctx->asked_at[tier] = now;
	/* CPUs that look at the same tick ask different ones. */
	llc = (own + 1 + (cctx->asks[tier]++ + cpu) % (nr_llcs - 1)) % nr_llcs;
	tag = first_tag(tier_dsq(tier, own), cpu, tier_clock(tier), false);
	return vtime_before(first_tag(tier_dsq(tier, llc), cpu, tag, true), tag) ? (s32)llc : -1;
}

/* The next task of a tier, own LLC first. */
static __always_inline bool consume_tier(u32 tier, s32 cpu)
{
	u32 own = cpu_llc(cpu);
	s32 behind = llc_behind(tier, cpu);
	int i;

	if (behind >= 0 && dsq_move_to_local(tier_dsq(tier, behind)))
		return true;
	if (dsq_move_to_local(tier_dsq(tier, own)))
		return true;
	if (nr_llcs == 1)
		return false;
	for_each_num(i, 0, TEMPER_MAX_LLCS) {
		if (i >= nr_llcs)
			break;
		if (i != own && dsq_move_to_local(tier_dsq(tier, i)))
			return true;
	}
	return false;
}

/*
 * The LLC in whose queue somebody of the tier who may run on cpu is due before tag,
 * or -1. Other LLCs than cpu's count too: a tier has one clock, and an LLC with few
 * tasks must help the others. guess: to fetch somebody. Where nobody is found, an own queue
 * too long to tell counts then, and who waits in another LLC may go before those of the own.
 */
static __always_inline s32 llc_with_due(u32 tier, s32 cpu, u64 tag, bool guess)
{
	u32 own = cpu_llc(cpu);
	s32 behind;
	int due, llc;

	due = is_due_before(tier_dsq(tier, own), cpu, tag, 0,
			    guess ? DUE_MAX_LOOKS : DUE_MAX_LOOKS_ELSEWHERE);
	if (due == DUE) {
		behind = guess ? llc_behind(tier, cpu) : -1;
		return behind >= 0 ? behind : (s32)own;
	}
	if (nr_llcs > 1)
		for_each_num(llc, 0, TEMPER_MAX_LLCS) {
			if (llc >= nr_llcs)
				break;
			if (llc != own && is_due_before(tier_dsq(tier, llc), cpu, tag, 0,
							DUE_MAX_LOOKS_ELSEWHERE) == DUE)
				return llc;
		}
	return guess && due == MAYBE_DUE ? (s32)own : -1;
}

/* Does a thread of another group wait in a queue that may run on cpu? Of a long line, its first. */
__noinline int another_waits(u64 dsq, s32 cpu, u64 group, u32 looks)
{
	struct bpf_iter_scx_dsq it;
	int waits = 0, i;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	for_each_num(i, 0, looks) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);

		if (!p)
			break;
		if (may_run_on(p, cpu) && !is_of_group(p, group)) {
			waits = 1;
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return waits;
}

/* The same of all queues of a tier. */
static __always_inline bool another_waits_in(u32 tier, s32 cpu, u64 group)
{
	u32 own = cpu_llc(cpu);
	int llc;

	if (another_waits(tier_dsq(tier, own), cpu, group, DUE_MAX_LOOKS))
		return true;
	if (nr_llcs > 1)
		for_each_num(llc, 0, TEMPER_MAX_LLCS) {
			if (llc >= nr_llcs)
				break;
			if (llc != own &&
			    another_waits(tier_dsq(tier, llc), cpu, group, DUE_MAX_LOOKS_ELSEWHERE))
				return true;
		}
	return false;
}

/*
 * Groups meet when one's thread runs after the other's. As slices end at ticks, they may
 * take turns for seconds so that each has the same CPUs again: before they are taken for
 * groups with CPUs of their own, a look at who waits tells.
 */
static __always_inline void notice_waiting(const struct task_ctx *tctx, struct group_ctx *group,
					   u32 tier, s32 cpu, u64 now)
{
	s64 since = elapsed(group->met_at, now);
	struct cpu_ctx *cctx;

	one_copy(tier);
	if (tier >= TEMPER_TIERS || since < (s64)WAIT_BOUND_NS / 2 || is_alone(group->met_at, now))
		return;
	cctx = try_lookup_cpu(cpu);
	if (cctx && another_waits_in(tier, cpu, tctx->group_id))
		cctx->met_at[tier] = group->met_at = met_at[tier] = now;
}

/* prev could go on. The LLC in whose queue somebody of its tier is due before it, or -1. */
static __always_inline s32 due_llc(const struct task_struct *prev, struct task_ctx *tctx, u32 tier,
				   s32 cpu)
{
	struct group_ctx *group = task_group(tctx);
	u64 now = scx_bpf_now(), tag;
	s64 ran = used_by_now(prev, tctx);
	s32 llc;

	one_copy(tier);
	if (!group || tier >= TEMPER_TIERS)
		return cpu_llc(cpu);
	notice_waiting(tctx, group, tier, cpu, now);
	tag = own_tag(group, tctx, ran);
	if (may_go_on(tag, vtime_now[tier], group->weight, ran))
		return -1;
	llc = llc_with_due(tier, cpu, tag, true);
	if (llc < 0 || !is_alone(group->met_at, now) ||
	    is_due_before(tier_dsq(tier, llc), cpu, tag, tctx->group_id, DUE_MAX_LOOKS) != DUE)
		return llc;
	meet(group, tier, now);
	return llc_with_due(tier, cpu, own_tag(group, tctx, ran), true);
}

/* Does anybody who waits in a queue want a CPU that p may use? Of a long line, its first. */
__noinline int is_contended(u64 dsq, struct task_struct *p __arg_trusted, u32 looks)
{
	struct bpf_iter_scx_dsq it;
	int contended = 0, i;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	for_each_num(i, 0, looks) {
		struct task_struct *other = bpf_iter_scx_dsq_next(&it);

		if (!other)
			break;
		if (bpf_cpumask_intersects(other->cpus_ptr, p->cpus_ptr)) {
			contended = 1;
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return contended;
}

/* The same of all queues of a tier. */
__noinline int is_tier_contended(u32 tier, struct task_struct *p __arg_trusted)
{
	u32 own = cpu_llc(scx_bpf_task_cpu(p));
	int llc;

	if (!queued_in(tier))
		return 0;
	for_each_num(llc, 0, TEMPER_MAX_LLCS) {
		if (llc >= nr_llcs)
			break;
		if (is_contended(tier_dsq(tier, llc), p,
				 llc == own ? DUE_MAX_LOOKS : DUE_MAX_LOOKS_ELSEWHERE))
			return 1;
	}
	return 0;
}

#endif
