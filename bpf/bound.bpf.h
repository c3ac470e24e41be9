/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks that run on their own CPU alone, and at once: its kernel threads, and whoever
 * cannot migrate for now. Our own timer may run from ksoftirqd: starve it and nothing
 * else helps. And who makes way in a CPU's own queue, for those and for others.
 */
#ifndef TEMPER_BOUND_BPF_H
#define TEMPER_BOUND_BPF_H

/* cpu is about to be taken: nobody else is to be placed there. */
static __always_inline void withdraw_cpu(struct cpu_ctx *cctx, s32 cpu)
{
	stop_yielding(cctx, cpu);
	if (cctx->tier < TEMPER_TIERS)
		clear_preemptible(cctx->tier, cpu);
	else if (is_idle(cpu))
		scx_bpf_test_and_clear_cpu_idle(cpu);
}

/*
 * A thread that cannot migrate for now is to run again. In the CPU's own queue no rescue
 * finds it: if it got nowhere for long, it is owed a slice like those that one finds.
 */
static __always_inline void note_stay(struct task_ctx *tctx)
{
	u64 now = scx_bpf_now();

	if (!tctx->stays_since || tctx->ran - tctx->stayed_ran >= STAY_RAN_NS) {
		tctx->stays_since = now;
		tctx->stayed_ran = tctx->ran;
	} else if (elapsed(tctx->stays_since, now) >= (s64)TIER_STARVES_NS) {
		tctx->owed = RESCUE_SLICE_NS;
	}
}

/* What p counts as while it waits: those below make way for it. Walked once: not inlined. */
__noinline u32 bound_tier(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx;

	if (is_per_cpu_kthread(p))
		return TEMPER_CRITICAL;
	tctx = try_lookup_task(p);
	if (!tctx)
		return TEMPER_CRITICAL;
	note_stay(tctx);
	return tctx->owed > OWED_TURN ? TEMPER_CRITICAL : tctx->tier;
}

/*
 * Whoever waits in the CPU's own queue was placed there to run at once, and p, before it,
 * would hold it up until p sleeps. So p stands behind: each of them begins to run, and
 * makes way at once (make_way), unless it outranks p, or p is a kernel thread whose slice
 * has ended: one that is always busy takes turns.
 */
static __always_inline void enqueue_bound(struct task_struct *p, s32 cpu, u64 enq_flags)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	u32 tier = bound_tier(p);
	bool outranked = cctx && cctx->tier < tier;
	bool waits = put_off_leave(p) || outranked;
	bool alone = scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) <= 0;

	if (cctx) {
		cctx->bound_turns =
			!alone && !(enq_flags & SCX_ENQ_WAKEUP) && is_per_cpu_kthread(p);
		if (!cctx->bound_waits || tier < cctx->bound_tier)
			cctx->bound_tier = tier;
		cctx->bound_waits = true;
		/* Who outranks p goes on, and may be preempted as ever. */
		if (!outranked)
			withdraw_cpu(cctx, cpu);
	}
	if (!waits && alone)
		enq_flags |= SCX_ENQ_PREEMPT;
	else if (!waits && cctx && cctx->tier < TEMPER_TIERS)
		/* Not another kernel thread: two would preempt each other without end. */
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	dsq_insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
}

/*
 * An idle CPU that is kicked is back in the idle mask, though a wakeup may have claimed it:
 * two take it. The second, if above background, stands first in the CPU's own queue, before
 * one that may outrank it, and need not wait: other CPUs may run lower tiers.
 */
static __always_inline bool may_be_first_by_chance(const struct task_ctx *tctx, bool queued)
{
	return !queued && tctx->tier < TEMPER_BACKGROUND;
}

/*
 * p begins to run. It is placed anew if somebody waits here whom it must make way for. Out of
 * a queue it came because no other CPU could be had: where turns are taken this one is its own.
 */
static __always_inline void make_way(struct task_struct *p, struct task_ctx *tctx,
				     struct cpu_ctx *cctx, s32 cpu, bool queued)
{
	if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) <= 0) {
		cctx->bound_waits = false;
	} else if (!is_bound_to_cpu(p) && tctx->leaving < LEAVING &&
		   (!cctx->bound_waits || tctx->tier >= cctx->bound_tier)) {
		withdraw_cpu(cctx, cpu);
		if (!cctx->bound_turns || !queued)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

#endif
