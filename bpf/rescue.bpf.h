/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The starvation bound. A timer looks through the queues for tasks that have
 * waited too long, and moves each to the rescue queue of a CPU it may run on.
 * dispatch serves that first. On its way it mends the place of those whose pod's
 * tier changed, or its clock was set back, while they waited.
 */
#ifndef TEMPER_RESCUE_BPF_H
#define TEMPER_RESCUE_BPF_H

/*
 * A pass looks at that many tasks of a queue: less than a millisecond of softirq each. Of a
 * longer one every other pass begins at the end, where those of the least weight stand.
 */
#define RESCUE_MAX_LOOKS 1024

/* With nothing queued the timer watches the heartbeat, and for the first to queue. */
#define RESCUE_IDLE_PERIOD_NS (50ULL * 1000 * 1000)

static u64 rescue_rotor;
static u64 rescue_passes;

static __always_inline u64 rescue_word(const struct task_struct *p, u32 word)
{
	one_copy(word);
	return word < TEMPER_MASK_WORDS ? mask_word(p->cpus_ptr, word) & online.words[word] : 0;
}

/*
 * One of p's CPUs that serve queues, the next in turn: a crowd of starving tasks must not
 * meet on one. They are counted: affinities name CPUs that are not there.
 */
__noinline s32 rescue_cpu(struct task_struct *p __arg_trusted)
{
	u32 skip, n = 0;
	s32 last = -1;
	int word, cpu;

	for (word = 0; word < TEMPER_MASK_WORDS && word < nr_words; word++)
		n += __builtin_popcountll(rescue_word(p, word));
	skip = __sync_fetch_and_add(&rescue_rotor, 1) % (n ?: 1);
	for_each_num(cpu, 0, TEMPER_MAX_CPUS) {
		if (cpu >= nr_cpus)
			break;
		if (!(rescue_word(p, (u32)cpu / 64) & cpu_bit(cpu)))
			continue;
		last = cpu;
		if (!skip--)
			break;
	}
	return last;
}

/* cpu has a task to rescue: should it be idle, it must look. */
static __always_inline void expect_rescue(s32 cpu)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);

	/* A hint: the timer's next pass counts. */
	if (cctx && !cctx->rescues)
		cctx->rescues = 1;
	/* One that was claimed, and not woken, has no bit and must look as well. */
	scx_bpf_test_and_clear_cpu_idle(cpu);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * Into the own queue of the CPU that p was on: no queue that p could wait in is served. All
 * CPUs that it may use are on their way offline, and who runs there the kernel moves
 * elsewhere; or its only one is kept by kernel threads.
 */
static __always_inline void push_off(struct bpf_iter_scx_dsq *it, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (scx_bpf_dsq_move(it, p, SCX_DSQ_LOCAL_ON | cpu, 0))
		scx_bpf_kick_cpu(cpu, 0);
}

/* Give p, out of any queue, to a CPU that will serve it. */
static __always_inline bool hand_over(struct bpf_iter_scx_dsq *it, struct task_struct *p,
				      struct task_ctx *tctx)
{
	s32 cpu = rescue_cpu(p);
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	u32 tier = tctx->tier;
	bool anywhere = p->nr_cpus_allowed >= nr_online;

	one_copy(tier);
	if (cpu < 0) {
		push_off(it, p);
		return false;
	}
	if (!cctx || tier >= TEMPER_TIERS)
		return false;
	scx_bpf_dsq_move_set_slice(it, RESCUE_SLICE_NS);
	/*
	 * The longest wait first: a change of affinity takes a task out of its
	 * rescue queue, and it must not begin at the end of another one.
	 */
	scx_bpf_dsq_move_set_vtime(it, queued_at(tctx->queued));
	/* Before the move: the CPU may run it at once. */
	tctx->owed = owed_by_rescue(anywhere ? turn_at[tier] : cctx->turn_at[tier], scx_bpf_now());
	if (!scx_bpf_dsq_move_vtime(it, p, rescue_dsq(cpu), 0)) {
		tctx->owed = 0;
		return false;
	}
	expect_rescue(cpu);
	return true;
}

/* p's group was set back while p waited, and others of the group would go before it. */
static __always_inline void set_tag_back(struct bpf_iter_scx_dsq *it, struct task_struct *p,
					 struct task_ctx *tctx)
{
	struct group_ctx *group = task_group(tctx);
	u64 before = tctx->set_back, ahead, tag;

	ahead = group ? set_back_since(group, tctx) : 0;
	if (!ahead)
		return;
	tag = p->scx.dsq_vtime - ahead;
	tag = with_credit(group, tag, tier_clock(tctx->tier), scx_bpf_now());
	scx_bpf_dsq_move_set_vtime(it, tag);
	if (scx_bpf_dsq_move_vtime(it, p, tier_dsq(tctx->tier, cpu_llc(scx_bpf_task_cpu(p))), 0))
		/* It may run by now, and have another tag. */
		__sync_val_compare_and_swap(&tctx->set_back, before, before + ahead);
}

/* p's pod changed its tier while p waited: it queues anew, by the new tier's clock. */
static __always_inline void change_queue(struct bpf_iter_scx_dsq *it, struct task_struct *p,
					 struct task_ctx *tctx, u64 now)
{
	u32 tier = tctx->tier;
	u32 llc = cpu_llc(scx_bpf_task_cpu(p));

	scx_bpf_dsq_move_set_vtime(it, charge_slice(tctx, true));
	want_cpus(p, tier);
	/* Before the move: a CPU may run it at once, and running counts it out. */
	count_queued(tctx, tier, now);
	if (!scx_bpf_dsq_move_vtime(it, p, tier_dsq(tier, llc), 0))
		return;
	count_insertion(tier);
	call_cpu(p);
}

/* Move p out of its queue if it has waited too long or has no business there. */
static __always_inline void rescue_one(struct bpf_iter_scx_dsq *it, struct task_struct *p,
				       u64 served, u64 now)
{
	struct task_ctx *tctx = lookup_task(p);
	u64 queued;

	if (!tctx)
		return;
	queued = *(volatile u64 *)&tctx->queued;
	if (!queued)
		return;
	if (is_starving(queued_at(queued), served, now) || tctx->owed) {
		if (hand_over(it, p, tctx))
			count_rescued(tctx->tier);
	} else if (tctx->tier != queued_tier(queued)) {
		change_queue(it, p, tctx, now);
	} else {
		set_tag_back(it, p, tctx);
	}
}

/*
 * A CPU went offline, or somebody holds it whom we do not rank: its rescued tasks move on.
 * Those that may run nowhere else stay; where kernel threads of the CPU take turns, and let no
 * queue be served, the first takes turns with them. Returns whether there are any.
 */
__noinline int reroute_rescues(s32 cpu)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	bool serves = mask_has(&online, cpu);
	struct bpf_iter_scx_dsq it;
	int i, stays = 0;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, rescue_dsq(cpu), 0);
	for_each_num(i, 0, RESCUE_MAX_LOOKS) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);
		struct task_ctx *tctx;

		if (!p)
			break;
		tctx = try_lookup_task(p);
		if (!tctx)
			continue;
		if (!serves || p->nr_cpus_allowed > 1) {
			hand_over(&it, p, tctx);
		} else if (!stays) {
			stays = 1;
			if (cctx && cctx->bound_turns)
				push_off(&it, p);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return stays;
}

__noinline int rescue_from(u32 tier, u32 llc, u64 served, u64 now)
{
	u64 dsq = tier_dsq(tier, llc);
	bool long_line = scx_bpf_dsq_nr_queued(dsq) > RESCUE_MAX_LOOKS;
	bool from_end = long_line && rescue_passes & 1;
	struct bpf_iter_scx_dsq it;
	int i;

	if (long_line)
		want_all_cpus(tier);
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, from_end ? SCX_DSQ_ITER_REV : 0);
	for_each_num(i, 0, RESCUE_MAX_LOOKS) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);

		if (!p)
			break;
		want_cpus(p, tier);
		/* The tier's own wait ends with its first task. */
		if (i > 0 || from_end)
			served = now;
		rescue_one(&it, p, served, now);
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

__noinline int rescue_all(void)
{
	u64 now = scx_bpf_now();
	int llc, tier, cpu;

	rescue_passes++;
	for (tier = 0; tier < TEMPER_TIERS; tier++) {
		if (!queued_in(tier))
			continue;
		for_each_num(llc, 0, TEMPER_MAX_LLCS) {
			if (llc >= nr_llcs)
				break;
			rescue_from(tier, llc, served_at[tier], now);
		}
	}
	renew_wanted(now);
	for_each_num(cpu, 0, TEMPER_MAX_CPUS) {
		struct cpu_ctx *cctx;

		if (cpu >= nr_cpus)
			break;
		cctx = try_lookup_cpu(cpu);
		if (!cctx)
			continue;
		cctx->rescues = scx_bpf_dsq_nr_queued(rescue_dsq(cpu));
		if (!cctx->rescues) {
			cctx->rescues_since = 0;
			continue;
		}
		if (!cctx->rescues_since)
			cctx->rescues_since = now;
		if (!mask_has(&online, cpu) ||
		    elapsed(cctx->rescues_since, now) >= (s64)RESCUE_AFTER_NS) {
			/* The next of them with the next pass. */
			if (!reroute_rescues(cpu))
				cctx->rescues_since = 0;
		} else {
			expect_rescue(cpu);
		}
	}
	return 0;
}

/* Is cpu kept free of lower tiers: beside a critical thread on its core, or on a fence? */
static __always_inline bool keeps_rescued_out(u64 generation, u32 lend, s32 cpu)
{
	return !may_serve(generation, lend, TEMPER_BACKGROUND, cpu);
}

/* Would an idle CPU serve a starving task by now? If not, the timer calls again. */
static __always_inline bool rescue_is_due(const struct cpu_ctx *cctx, s32 cpu)
{
	u64 generation;

	if (!cctx->rescues)
		return false;
	generation = current_generation();
	return may_rescue(cctx->rescued_at, scx_bpf_now(),
			  keeps_rescued_out(generation, plan_lend(generation), cpu), cctx->rescues);
}

/* Serve a starving task here, if one waits and its turn has come. */
static __always_inline bool serve_rescued(s32 cpu, struct cpu_ctx *cctx, bool higher)
{
	u64 now = scx_bpf_now();

	if (!may_rescue(cctx->rescued_at, now, higher, cctx->rescues))
		return false;
	if (!dsq_move_to_local(rescue_dsq(cpu))) {
		cctx->rescues = 0;
		return false;
	}
	cctx->rescued_at = now;
	cctx->rescues_since = now;
	cctx->rescues = scx_bpf_dsq_nr_queued(rescue_dsq(cpu));
	return true;
}

#endif
