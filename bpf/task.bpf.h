/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is remembered of a thread, and of the group it belongs to.
 */
#ifndef TEMPER_TASK_BPF_H
#define TEMPER_TASK_BPF_H

/* One group's share of its tier. */
struct group_ctx {
	u64 vtime; /* next start tag, advanced by what its threads were charged */
	u64 clock; /* start tag of the service that began the farthest on */
	u64 wanted_at; /* one of its threads last wanted more than its slice */
	u64 met_at; /* another group last wanted a CPU of one of its threads, or the other way round */
	u64 set_back; /* of vtime, in all, by set_group_back and change_weight */
	u32 weight; /* cpu.weight */
	u32 tier; /* whose clock vtime is measured by */
	u32 gate; /* of its own limit; 0: none */
};

/*
 * Group shares: cgroup storage -> struct group_ctx.
 * Created by cgroup_init, weight written by cgroup_set_weight, vtime by any CPU
 * atomically, the others by any: the last one counts. Dies with the cgroup.
 */
struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group_ctx);
} group_ctxs SEC(".maps");

/* The limits that hold for a thread, its own cgroup's first; 0: no more. */
struct gate_chain {
	u32 slots[TEMPER_GATE_DEPTH];
};

/* A thread below a limit, on its way to user mode (leave.bpf.h). */
enum leaving {
	NOT_LEAVING,
	ASKED_TO_LEAVE, /* begins to at its return to user mode */
	LEAVING, /* parked when it is taken off its CPU next, unless it may run nowhere else */
	LEAVING_BOUND, /* the kernel has bound it to its CPU, and will unbind it */
};

struct task_ctx {
	u64 generation; /* of the plan that tier and fence were read from */
	u64 css_set; /* where the thread lived then: it moves with its cgroup */
	u32 tier;
	u32 fence;
	u64 queued; /* waits in a queue: since when, and of which tier (queue.bpf.h); 0: it does not */
	/*
	 * sum_exec_runtime up to which it is charged. It grows after stopping too: a
	 * thread that falls asleep is booked what the search for the next one takes.
	 */
	u64 exec_at;
	u64 started_at;
	u64 ran; /* ns since it woke, up to when it was taken off its CPU last */
	u64 ran_before; /* ns from the wakeup before until it slept; 0: it never did */
	s64 charged; /* ns its group paid in advance; below zero: owes */
	u64 owed; /* ns a rescue still owes it, or OWED_TURN */
	u64 stays_since; /* it waits, unable to migrate, and got nowhere since; 0: it does not */
	u64 stayed_ran; /* ran as of then */
	u64 limits_seq; /* when gates was read */
	struct gate_chain gates; /* of the limits above it */
	u64 granted; /* ns of the grant in use; 0: on debt, or no limit */
	u32 kept_epochs[TEMPER_GATE_DEPTH]; /* of the gates when it fell asleep and kept it */
	bool keeps; /* it fell asleep, and granted is what it kept */
	u64 grant_began;
	s64 settled; /* ns of this stay on the CPU that earlier grants paid */
	u64 overpaid; /* ns paid for that it did not use */
	u64 parked; /* waits at a gate: since when, and at which (pace.bpf.h); 0: it does not */
	u32 paced; /* counted, since it began to run, at the gates above it */
	u32 leaving; /* enum leaving */
	bool has_work; /* in return_works (leave.bpf.h) */
	u64 group_id; /* group's address, to tell groups apart by */
	u64 set_back; /* its group's, when its tag was read */
	struct cgroup __kptr *group;
};

/* Counts limits that came or went: what threads know of them is as old. */
static u64 limits_seq;

/* Threads: task storage. Created by init_task, dies with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

/*
 * Clock of each tier: the start tag of the latest service, of groups that compete.
 * Races between CPUs lose a step now and then; the next service makes it up.
 */
static u64 vtime_now[TEMPER_TIERS] __attribute__((aligned(64)));

/* When groups of a tier met last, and when a tag that waited moved its clock last. */
static u64 met_at[TEMPER_TIERS] __attribute__((aligned(64)));
static u64 tagged_at[TEMPER_TIERS] __attribute__((aligned(64)));

/*
 * Tasks in the queues, per tier: it saves looking into empty ones. It may be too
 * high for a while (a task that left without running), never too low.
 */
static u64 nr_queued[TEMPER_TIERS] __attribute__((aligned(64)));

static __always_inline u64 queued_in(u32 tier)
{
	one_copy(tier);
	return tier < TEMPER_TIERS ? *(volatile u64 *)&nr_queued[tier] : 0;
}

static __always_inline struct task_ctx *try_lookup_task(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, NULL, 0);
}

static __always_inline bool is_per_cpu_kthread(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

/*
 * BPF programs run with migration disabled: a count of one on the running task itself is
 * our own, of two where cpu_release has the kernel call enqueue. Without
 * CONFIG_PREEMPT_RCU kernels from 6.18 on do not count themselves, and to move such a
 * task would eject us.
 */
static __always_inline bool is_migration_disabled(const struct task_struct *p)
{
	u32 times = p->migration_disabled, own = 1;
	struct cpu_ctx *cctx;

	if (!times || !prog_counts_itself || (struct task_struct *)bpf_get_current_task_btf() != p)
		return times;
	if (times == 2) {
		cctx = try_lookup_cpu(bpf_get_smp_processor_id());
		own += cctx && cctx->releases;
	}
	return times > own;
}

/*
 * The kernel has bound p to its CPU: it does so with a thread that has migration
 * disabled, since 7.0 before it is scheduled, earlier when another runs next.
 */
static __always_inline bool is_bound_by_kernel(const struct task_struct *p)
{
	return (const void *)p->cpus_ptr != (const void *)&p->cpus_mask;
}

/* May the kernel alone decide where p runs, and should it run at once? */
static __always_inline bool is_bound_to_cpu(const struct task_struct *p)
{
	return is_per_cpu_kthread(p) || is_migration_disabled(p);
}

/*
 * As what p counts while it runs. Kernel threads of this CPU stand outside the
 * ranking. A rescued task that is owed a slice does so until it had it: whoever saturates the
 * node queues at once, and would take the CPU back after microseconds. Not one that
 * cannot migrate: that is over in a moment, of which nobody tells us.
 */
static __always_inline u32 rank_on_cpu(const struct task_struct *p, const struct task_ctx *tctx)
{
	return is_per_cpu_kthread(p) || tctx->owed > OWED_TURN ? TEMPER_NO_TIER : tctx->tier;
}

static __always_inline struct group_ctx *task_group(struct task_ctx *tctx)
{
	struct cgroup *group = tctx->group;

	return group ? bpf_cgrp_storage_get(&group_ctxs, group, NULL, 0) : NULL;
}

/* A group that changed its tier starts by the new tier's clock. */
static __always_inline void rebase_group(struct group_ctx *group, u32 tier)
{
	if (group->tier == tier || tier >= TEMPER_TIERS)
		return;
	/* Meanwhile no other CPU is to clamp it by the clock of either tier. */
	__sync_lock_test_and_set(&group->tier, TEMPER_NO_TIER);
	group->vtime = group->clock = vtime_now[tier];
	__sync_lock_test_and_set(&group->tier, tier);
}

/* The limits that hold for a thread of cgrp, the nearest first. */
static __always_inline void find_gates(struct cgroup *cgrp, struct task_ctx *tctx)
{
	int i, n = 0, level = level_within_pod(cgrp);
	struct gate_chain gates = {};

	for_each_num(i, 0, MAX_CGROUP_DEPTH) {
		struct cgroup *above;
		struct group_ctx *group;

		if (i >= level)
			break;
		above = bpf_cgroup_ancestor(cgrp, level - i);
		if (!above)
			break;
		group = bpf_cgrp_storage_get(&group_ctxs, above, NULL, 0);
		if (group && group->gate && n < TEMPER_GATE_DEPTH)
			gates.slots[n++ & (TEMPER_GATE_DEPTH - 1)] = group->gate;
		bpf_cgroup_release(above);
	}
	tctx->gates = gates;
}

static __always_inline void join_group(struct task_struct *p, struct task_ctx *tctx, u64 generation)
{
	struct css_set *css_set = p->cgroups;
	struct membership m = {};
	struct cgroup *cgrp, *group;
	struct group_ctx *share = NULL;
	bool keeps;

	if (!css_set)
		return;
	cgrp = css_set->dfl_cgrp;
	if (!cgrp)
		return;
	resolve_group(cgrp, generation, &m);
	tctx->tier = m.tier;
	tctx->fence = m.fence;
	tctx->generation = generation;
	tctx->css_set = (u64)css_set;
	/* A grant is settled where it was taken: later, then. */
	keeps = tctx->granted || tctx->paced;
	tctx->limits_seq = keeps ? ~0ULL : limits_seq;
	if (!keeps) {
		find_gates(cgrp, tctx);
		if (!tctx->gates.slots[0])
			tctx->leaving = NOT_LEAVING;
	}

	group = bpf_cgroup_ancestor(cgrp, m.level);
	if (group) {
		/*
		 * Without the cpu controller the kernel tells us nothing of the
		 * group: no cgroup_init. Its share is the default weight's.
		 */
		share = bpf_cgrp_storage_get(&group_ctxs, group, NULL,
					     BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (share && !share->weight) {
			share->weight = DEFAULT_WEIGHT;
			share->tier = TEMPER_NO_TIER;
		}
		if (share)
			rebase_group(share, m.tier);
	}
	if (tctx->group_id != (u64)group) {
		tctx->group_id = (u64)group;
		tctx->set_back = share ? share->set_back : 0;
	}
	group = bpf_kptr_xchg(&tctx->group, group);
	if (group)
		bpf_cgroup_release(group);
}

/*
 * Find out anew what p belongs to: the plan changed, or p moved. Also called
 * from programs that may sleep, where nothing else holds the RCU lock.
 */
__noinline int refresh_task(struct task_struct *p __arg_trusted, u64 generation)
{
	struct task_ctx *tctx = try_lookup_task(p);

	if (!tctx)
		return 0;
	bpf_rcu_read_lock();
	join_group(p, tctx, generation);
	bpf_rcu_read_unlock();
	return 0;
}

/* The thread's context, true to the plan in force. NULL: not ours yet. */
static __always_inline struct task_ctx *lookup_task(struct task_struct *p)
{
	struct task_ctx *tctx = try_lookup_task(p);
	u64 generation;

	if (!tctx)
		return NULL;
	generation = current_generation();
	if (tctx->generation != generation || tctx->css_set != (u64)p->cgroups ||
	    tctx->limits_seq != *(volatile u64 *)&limits_seq)
		refresh_task(p, generation);
	return tctx;
}

/* The group's tag, if it is no further behind the tier's clock than its credit. */
static __always_inline u64 with_credit(const struct group_ctx *group, u64 tag, u64 clock, u64 now)
{
	u64 credit = credit_of(elapsed(group->wanted_at, now));

	return clamp_vtime(tag, clock, credit_cost(credit, group->weight));
}

/*
 * The group pays in advance for what a thread is about to run, less what is left of an
 * earlier charge, or more what that one missed. Returns the tag that its clock showed.
 */
static __always_inline u64 pay(struct group_ctx *group, u32 tier, u64 ns, s64 left, u64 now)
{
	s64 cost = vtime_cost_signed((s64)ns - left, group->weight);
	u64 before = __sync_fetch_and_add(&group->vtime, cost);
	u64 tag = before - vtime_cost_signed(left, group->weight);
	u64 floor;

	one_copy(tier);
	if (tier >= TEMPER_TIERS || group->tier != tier)
		return tag;
	floor = with_credit(group, tag, vtime_now[tier], now);
	/* Of several who wake at once the last one sees to it: what is lost is lost once. */
	if (floor != tag)
		__sync_val_compare_and_swap(&group->vtime, before + cost,
					    before + cost + (floor - tag));
	return floor;
}

/*
 * The thread gets the tag by which it queues: a group's threads are spaced along its
 * clock, so it gets its weight's share whether it has one thread or a hundred. One that
 * woke will most likely run as long as the last time: a whole slice would keep the
 * group's others from answering for as long.
 */
static __always_inline u64 charge_slice(struct task_ctx *tctx, bool woken)
{
	struct group_ctx *group = task_group(tctx);
	u64 ns = woken ? expected_run(tctx->ran_before) : SLICE_NS;
	u64 now = scx_bpf_now();
	u32 tier = tctx->tier;
	s64 left;

	if (tier >= TEMPER_TIERS)
		return 0;
	if (!group)
		return vtime_now[tier];
	/* Of the group: a thread that sleeps and wakes must not cost the others their credit. */
	if (!woken)
		group->wanted_at = now;
	left = tctx->charged;
	tctx->charged = ns;
	/* Before the tag is: to be set back twice costs a turn, not to be is to wait. */
	tctx->set_back = *(volatile u64 *)&group->set_back;
	return pay(group, tier, ns, left, now);
}

/* By how much the group was set back since the thread's tag was read. */
static __always_inline u64 set_back_since(const struct group_ctx *group,
					  const struct task_ctx *tctx)
{
	return *(volatile u64 *)&group->set_back - tctx->set_back;
}

/*
 * Does the service of the group that begins now move the tier's clock? Not if the group
 * has CPUs of its own and others compete elsewhere: all of them would be behind it, and
 * equal. waited: in the queue, by a tag. Else it does only while no such tag does; if
 * none did, a group that ran without waiting for long would look guilty when company
 * comes. To be asked before the tag is read: the group may be set back meanwhile.
 */
static __always_inline bool moves_tier(const struct group_ctx *group, u32 tier, bool waited,
				       u64 now)
{
	one_copy(tier);
	if (tier >= TEMPER_TIERS || !moves_clock(group->met_at, met_at[tier], now))
		return false;
	if (waited)
		tagged_at[tier] = now;
	return waited || !queued_in(tier) || elapsed(tagged_at[tier], now) >= (s64)CREDIT_WAITED_NS;
}

/* A service of the group began at tag. */
static __always_inline void move_clock(struct group_ctx *group, u32 tier, u64 tag, bool moves)
{
	one_copy(tier);
	/* Its group may be of another tier by now: the tag is of that one's clock. */
	if (tier >= TEMPER_TIERS || group->tier != tier)
		return;
	if (vtime_before(group->clock, tag))
		group->clock = tag;
	if (moves && vtime_before(vtime_now[tier], tag))
		vtime_now[tier] = tag;
}

/*
 * What the group used alone it took from nobody: where it is ahead of its tier's clock by
 * more than lead, it is set back to that clock. The tags of its threads that are queued
 * follow when the rescue comes by. False: another CPU does it, or moved the group's clock.
 */
static __always_inline bool set_group_back(struct group_ctx *group, u32 tier, s64 lead)
{
	u64 clock = group->clock;
	s64 ahead;

	one_copy(tier);
	if (tier >= TEMPER_TIERS || group->tier != tier)
		return true;
	ahead = clock - vtime_now[tier];
	if (ahead <= lead)
		return true;
	if (__sync_val_compare_and_swap(&group->clock, clock, clock - ahead) != clock)
		return false;
	__sync_fetch_and_sub(&group->vtime, ahead);
	__sync_fetch_and_add(&group->set_back, ahead);
	return true;
}

/*
 * What its threads that wait paid in advance was dear while the weight was small: of that
 * the group is set back, or it would pay it off for seconds.
 */
static __always_inline void change_weight(struct group_ctx *group, u32 weight)
{
	s64 ahead = group->vtime - group->clock;
	u32 before = group->weight;

	group->weight = weight;
	if (weight <= before || ahead <= 0)
		return;
	ahead -= (u64)ahead * before / weight;
	__sync_fetch_and_sub(&group->vtime, ahead);
	__sync_fetch_and_add(&group->set_back, ahead);
}

/* A group has company on a CPU. */
static __always_inline void meet(struct group_ctx *group, u32 tier, u64 now)
{
	one_copy(tier);
	if (tier >= TEMPER_TIERS || group->tier != tier)
		return;
	/* Before it is said that it met: until then its tags move no clock but its own. */
	if (is_alone(group->met_at, now) && !set_group_back(group, tier, 0))
		return;
	group->met_at = met_at[tier] = now;
}

/* p is taken off its CPU. */
static __always_inline void note_run(struct task_ctx *tctx, u64 used, bool runnable)
{
	tctx->ran += used;
	if (runnable)
		return;
	tctx->ran_before = tctx->ran;
	tctx->ran = 0;
	tctx->stays_since = 0;
}

static __always_inline u64 tier_clock(u32 tier)
{
	one_copy(tier);
	return tier < TEMPER_TIERS ? vtime_now[tier] : 0;
}

/* What p used since it was charged last, as of when the kernel counted last. */
static __always_inline u64 used_by_now(const struct task_struct *p, const struct task_ctx *tctx)
{
	return p->se.sum_exec_runtime - tctx->exec_at;
}

/*
 * The tag at which a thread that has run for ran would go on: its group's, as it would
 * be settled now.
 */
static __always_inline u64 own_tag(const struct group_ctx *group, const struct task_ctx *tctx,
				   s64 ran)
{
	return group->vtime + vtime_cost_signed(ran - tctx->charged, group->weight);
}

/*
 * The group pays for another slice of a thread that goes on, less what is left of the
 * last one. The timer among peers asks often whether a thread goes on: to pay a whole
 * slice each time would put the group's others behind all peers. free: nor for what it
 * used up to now. Returns the slice's tag.
 */
static __always_inline u64 charge_again(struct task_ctx *tctx, u64 used, bool free)
{
	struct group_ctx *group = task_group(tctx);
	u64 now = scx_bpf_now(), tag = 0;
	bool moves;

	if (group && free) {
		/* Of the time before it was known that nobody else comes. */
		set_group_back(group, tctx->tier, vtime_cost(CREDIT_WAITED_NS, group->weight));
		if (tctx->charged < (s64)used)
			tctx->charged = used;
		return group->vtime;
	}
	if (group) {
		group->wanted_at = now;
		moves = moves_tier(group, tctx->tier, false, now);
		tag = pay(group, tctx->tier, SLICE_NS, tctx->charged - (s64)used, now);
		move_clock(group, tctx->tier, tag, moves);
	}
	tctx->charged = (s64)used + SLICE_NS;
	return tag;
}

/*
 * Settle what was paid in advance against what was used. A thread that queues
 * next is settled there: somebody may wait for this one to be off the CPU.
 */
static __always_inline void settle_charge(struct task_struct *p, struct task_ctx *tctx, u64 used,
					  bool queues)
{
	struct group_ctx *group;
	u32 tier = tctx->tier;
	bool moves;
	u64 tag;
	s64 cost;

	if (queues && tctx->charged) {
		tctx->charged -= used;
		return;
	}
	group = task_group(tctx);
	if (!group || tier >= TEMPER_TIERS)
		return;
	cost = vtime_cost_signed((s64)used - tctx->charged, group->weight);
	if (tctx->charged) {
		__sync_fetch_and_add(&group->vtime, cost);
		tctx->charged = 0;
		return;
	}
	/* Served without a tag. On CPUs of its own it took nothing from anybody. */
	if (has_own_cpus(p, tier))
		return;
	moves = moves_tier(group, tier, false, scx_bpf_now());
	tag = __sync_fetch_and_add(&group->vtime, cost);
	move_clock(group, tier, tag, moves);
}

#endif
