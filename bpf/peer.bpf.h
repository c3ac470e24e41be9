/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Peers: a thread that wakes on a node full of its own tier.
 *
 *   wakeup ──► its group used less than its share ──► the CPU of a peer that has
 *      │                                              been computing for long
 *      └─► queue ──► timer: it is due before a peer that has been ──► the same
 *
 * Slices of sched_ext end at ticks, and a wakeup would wait for two of them. Not
 * for background, which preempts nobody.
 */
#ifndef TEMPER_PEER_BPF_H
#define TEMPER_PEER_BPF_H

/*
 * CPUs that a wakeup looks at: it must not cost ever more on ever larger nodes.
 * verifier: 6.18 calls it a bug of its own to keep the best in an iterator's loop.
 */
#define MAX_PEERS 4

/* A pass of the timer ends one slice of every so many neighbouring CPUs. */
#define PEER_CPUS 4

struct peer_timer {
	struct bpf_timer timer;
	u64 fires_at; /* 0: it was not started */
	u64 watch_until; /* a task woke and queued not long before */
	u32 turn; /* of neighbours, whose slice ends first */
};

/* One entry. Written by whoever queues, on any CPU, and by the timer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct peer_timer);
} peer_timers SEC(".maps");

static __always_inline void stop_yielding(struct cpu_ctx *cctx, s32 cpu)
{
	if (cctx->yields_in == TEMPER_NO_TIER)
		return;
	clear_cpu(tier_word(yielding, cctx->yields_in, cpu), cpu);
	cctx->yields_in = TEMPER_NO_TIER;
}

/* On its own fence a thread yields to no peer. */
static __always_inline bool is_at_home(const struct task_ctx *tctx, s32 cpu)
{
	return tctx->fence && fence_of_cpu(tctx->generation, cpu) == tctx->fence;
}

/* What runs on cpu, served by tag, may be preempted by peers from now on. */
static __always_inline void start_yielding(struct task_ctx *tctx, struct cpu_ctx *cctx, s32 cpu,
					   u64 tag)
{
	struct group_ctx *group = task_group(tctx);
	u32 tier = tctx->tier;

	if (cctx->yields_in != tier)
		stop_yielding(cctx, cpu);
	if (!group || tier >= TEMPER_BACKGROUND || is_at_home(tctx, cpu))
		return;
	cctx->weight = group->weight;
	cctx->tag = tag;
	cctx->tag_at = bpf_ktime_get_ns();
	cctx->yields_in = tier;
	set_cpu(tier_word(yielding, tier, cpu), cpu);
}

/* A thread of the group runs on a CPU, or is about to: after another group's, they meet. */
static __always_inline void come_to(struct cpu_ctx *cctx, const struct task_ctx *tctx,
				    struct group_ctx *group, u32 tier, u64 now)
{
	u64 last;

	one_copy(tier);
	if (tier >= TEMPER_TIERS)
		return;
	last = cctx->served[tier];
	if (last == tctx->group_id)
		return;
	cctx->served[tier] = tctx->group_id;
	cctx->met_at[tier] = now;
	if (last)
		meet(group, tier, now);
}

/* p begins to run, and its tag moves clocks. */
static __always_inline void begin_service(const struct task_struct *p, struct task_ctx *tctx,
					  struct cpu_ctx *cctx, s32 cpu, bool by_tag, u64 now)
{
	/* A rescued task was ordered by its wait, not by its group's clock. */
	bool pays = tctx->charged && !tctx->owed, moves;
	struct group_ctx *group;
	u32 tier = tctx->tier;
	u64 tag;

	one_copy(tier);
	if (tier >= TEMPER_TIERS || (cctx->served[tier] == tctx->group_id && !pays))
		return;
	group = task_group(tctx);
	if (!group)
		return;
	come_to(cctx, tctx, group, tier, now);
	if (!pays)
		return;
	if (by_tag) {
		moves = moves_tier(group, tier, true, now);
		tag = p->scx.dsq_vtime - set_back_since(group, tctx);
		move_clock(group, tier, tag, moves);
	} else {
		tag = own_tag(group, tctx, 0);
	}
	if (yields_to_peers(tier, tctx->ran))
		start_yielding(tctx, cctx, cpu, tag);
}

/*
 * The tag by which a thread of the group would queue. It does not, and pays for what
 * it ran when it stops: what is beyond the group's credit is lost here already.
 */
static __always_inline u64 peek_tag(struct group_ctx *group, u64 clock)
{
	u64 tag = *(volatile u64 *)&group->vtime;
	u64 floor = with_credit(group, tag, clock, scx_bpf_now());

	if (floor != tag)
		__sync_val_compare_and_swap(&group->vtime, tag, floor);
	return floor;
}

/* How far what yields on a CPU has come on its group's clock. */
static __always_inline u64 tag_by_now(const struct cpu_ctx *cctx, u64 now)
{
	return cctx->tag + vtime_cost_signed(elapsed(cctx->tag_at, now), cctx->weight);
}

/*
 * Both claims: whoever outranks the peer may have taken the CPU, and who is inserted there
 * last stands first. A critical thread cannot be preempted, and has no other claim.
 */
static __always_inline bool claim_yielding(u32 tier, s32 cpu)
{
	return clear_cpu(tier_word(yielding, tier, cpu), cpu) &&
	       (tier == TEMPER_CRITICAL || clear_preemptible(tier, cpu));
}

/* Of candidates, a word of a mask, the CPU whose thread has come the farthest, claimed; or -1. */
__noinline s32 claim_peer(struct search *s __arg_nonnull, u64 candidates)
{
	u64 now = bpf_ktime_get_ns(), farthest = 0;
	s32 best = -1;
	int i;

	for (i = 0; i < MAX_PEERS; i++) {
		struct cpu_ctx *cctx;
		u64 tag;
		s32 cpu;

		if (!candidates)
			break;
		cpu = first_candidate(s, s->prev_word, candidates);
		candidates &= ~cpu_bit(cpu);
		cctx = try_lookup_cpu(cpu);
		if (!cctx || !may_serve(s->generation, s->lend, s->tier, cpu))
			continue;
		tag = tag_by_now(cctx, now);
		if (best >= 0 && !vtime_before(farthest, tag))
			continue;
		farthest = tag;
		best = cpu;
	}
	return best >= 0 && claim_yielding(s->tier, best) ? best : -1;
}

/*
 * The CPU to preempt for p, claimed; -1 if there is none or p's group is not behind.
 * Whoever is preempted queues at once, and pays for no more than it used.
 */
static __always_inline s32 pick_peer(struct task_struct *p, struct task_ctx *tctx, struct search *s)
{
	u64 candidates, clock, tag, *word = tier_word(yielding, s->tier, s->prev_word * 64);
	struct group_ctx *group;
	struct cpu_ctx *cctx;
	s32 cpu;

	if (!word || no_preempt)
		return -1;
	candidates = *(volatile u64 *)word & mask_word(p->cpus_ptr, s->prev_word) &
		     llc_word(s->llc, s->prev_word);
	if (!candidates)
		return -1;
	group = task_group(tctx);
	if (!group)
		return -1;
	clock = tier_clock(s->tier);
	tag = peek_tag(group, clock);
	cpu = is_behind_peers(tag, clock, group->weight) ? claim_peer(s, candidates) : -1;
	cctx = cpu >= 0 ? try_lookup_cpu(cpu) : NULL;
	/* Before it is there: whoever is preempted finds company when it queues. */
	if (cctx)
		come_to(cctx, tctx, group, s->tier, scx_bpf_now());
	return cpu;
}

/* In virtual time, beyond any tag. */
#define FAR_AHEAD (1ULL << 62)

/* The tag of who is due first in a tier's queues; none if nobody is before that. */
__noinline u64 earliest_tag(u32 tier, u64 none)
{
	u64 tag;
	int llc;

	for (llc = 0; llc < TEMPER_MAX_LLCS && llc < nr_llcs; llc++) {
		tag = head_tag(tier_dsq(tier, llc), none);
		if (vtime_before(tag, none))
			none = tag;
	}
	return none;
}

/*
 * Is somebody of the tier who may run on cpu due before the peer that computes there? Nobody
 * is due before earliest: to ask each queue of a large node for each CPU takes milliseconds.
 */
__noinline int is_peer_due(u32 tier, s32 cpu, u64 earliest, u64 now)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	u64 tag;

	if (!cctx || cctx->yields_in != tier || !is_wanted(tier, cpu))
		return 0;
	tag = tag_by_now(cctx, now);
	return vtime_before(earliest, tag) && llc_with_due(tier, cpu, tag, false) >= 0;
}

/*
 * Ends the slices of peers that are ahead of somebody who may run there: of every few
 * neighbouring CPUs one, in turn. A period for each would be a slice for all.
 */
__noinline int serve_peers(u32 tier, u64 now, u32 turn)
{
	u64 earliest = earliest_tag(tier, tier_clock(tier) + FAR_AHEAD);
	int i, j;

	for_each_num(i, 0, TEMPER_MAX_CPUS / PEER_CPUS) {
		if (i * PEER_CPUS >= nr_cpus)
			break;
		for (j = 0; j < PEER_CPUS; j++) {
			u32 cpu = i * PEER_CPUS + (turn + j) % PEER_CPUS;

			if (cpu >= nr_cpus || !is_peer_due(tier, cpu, earliest, now))
				continue;
			if (clear_cpu(tier_word(yielding, tier, cpu), cpu))
				scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			break;
		}
	}
	return 0;
}

static __always_inline void start_peer_timer(struct peer_timer *t, u64 now)
{
	t->fires_at = now + PEER_PERIOD_NS;
	if (bpf_timer_start(&t->timer, PEER_PERIOD_NS, 0))
		t->fires_at = 0;
}

static int peer_timer_fired(void *map, u32 *key, struct peer_timer *t)
{
	u64 now = bpf_ktime_get_ns();
	bool queued = false;
	int tier;

	t->fires_at = 0;
	t->turn++;
	for (tier = 0; tier < TEMPER_BACKGROUND; tier++) {
		if (!queued_in(tier))
			continue;
		queued = true;
		serve_peers(tier, now, t->turn);
	}
	if (queued && elapsed(t->watch_until, now) < 0)
		start_peer_timer(t, now);
	return 0;
}

/* A task of this tier woke and queued: if peers compute, it is not to wait for a tick. */
static __always_inline void expect_peers(u32 tier)
{
	u64 now, any = 0;
	struct peer_timer *t;
	u32 key = 0;
	int word;

	one_copy(tier);
	if (tier >= TEMPER_BACKGROUND || no_preempt)
		return;
	for (word = 0; word < TEMPER_MASK_WORDS; word++)
		any |= *(volatile u64 *)&yielding[tier].words[word];
	if (!any)
		return;
	t = bpf_map_lookup_elem(&peer_timers, &key);
	if (!t)
		return;
	now = bpf_ktime_get_ns();
	t->watch_until = now + PEER_WATCH_NS;
	if (!fires_by(t->fires_at, now + PEER_PERIOD_NS, now))
		start_peer_timer(t, now);
}

static __always_inline void init_peers(void)
{
	u32 key = 0;
	struct peer_timer *t = bpf_map_lookup_elem(&peer_timers, &key);

	if (!t)
		return;
	bpf_timer_init(&t->timer, &peer_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, peer_timer_fired);
}

#endif
