// SPDX-License-Identifier: GPL-2.0
/*
 * A tiered scheduler: a waking critical task waits for no lower tier.
 *
 *   wakeup ──► idle CPU: own fence, open CPUs, lent CPUs ──► its local queue
 *                │ none
 *                ├─ a CPU runs a lower tier, preemptible now ──► its local queue, preempting
 *                ├─ its group is behind a peer's ──► the peer's CPU, preempting
 *                └─ no ──► queue of (tier, LLC), by the group's virtual time
 *   dispatch: rescued tasks, then tiers by rank; own LLC mostly first.
 *
 * Invariants:
 *   I1  A task waits in a queue of an LLC it may run on.
 *   I2  Per-CPU kernel threads and migration-disabled tasks wait in their own
 *       CPU's queue, and in no other: whoever runs there makes way, unless it
 *       outranks them (bound.bpf.h).
 *   I3  No task waits in a queue while a lower tier runs on a CPU it may use:
 *       who queues looks for a victim afterwards, who begins to run a lower
 *       tier looks into the queues afterwards (queued_seq). Nor in a CPU's own
 *       queue: who is overtaken there is placed anew (make_way, cpu_release).
 *   I4  Every queued task runs within WAIT_BOUND_NS (policy.bpf.h).
 *   I5  If the agent dies, the last plan stays in force until the dead-man
 *       returns the node to the kernel's scheduler.
 *   I6  A cgroup with a CPU limit uses no more than its bucket held, and what
 *       its threads run in the kernel is paid back (pace.bpf.h).
 * Given up: fairness between tiers.
 */
#include "intf.h"
#include "kernel.bpf.h"
#include "policy.bpf.h"
#include "bucket.bpf.h"
#include "dsq.bpf.h"
#include "tier.bpf.h"
#include "cpu.bpf.h"
#include "task.bpf.h"
#include "idle.bpf.h"
#include "victim.bpf.h"
#include "stats.bpf.h"
#include "wanted.bpf.h"
#include "queue.bpf.h"
#include "gate.bpf.h"
#include "peer.bpf.h"
#include "leave.bpf.h"
#include "bound.bpf.h"
#include "pace.bpf.h"
#include "limit.bpf.h"
#include "rescue.bpf.h"
#include "lend.bpf.h"
#include "control.bpf.h"

char _license[] SEC("license") = "GPL";

TEMPER_EXPORT(enum, temper_tier);
TEMPER_EXPORT(enum, temper_lend);
TEMPER_EXPORT(enum, temper_limits);
TEMPER_EXPORT(enum, temper_exit_code);

/*
 * Place p on an idle CPU or one it may preempt. Returns the CPU, or -1. An idle one is preempted
 * too: since the claim it may have picked up a lower tier (waits of 1 to 8 ms were seen without).
 */
static __always_inline s32 place(struct task_struct *p, struct task_ctx *tctx, s32 prev_cpu,
				 bool wakes, u64 *enq_flags)
{
	struct search s;
	bool idle;
	s32 cpu;

	begin_search(&s, tctx, prev_cpu);
	s.apart = has_smt;
	cpu = pick_idle(p, &s);
	idle = cpu >= 0;
	if (!idle)
		cpu = pick_victim(p, &s);
	if (cpu < 0 && s.apart) {
		s.apart = false;
		cpu = pick_idle(p, &s);
		idle = cpu >= 0;
	}
	if (idle) {
		*enq_flags = s.tier < TEMPER_BACKGROUND ? SCX_ENQ_PREEMPT : 0;
		return cpu;
	}
	/* Late: it queues, for the first that can (call_cpu_near), and passes no peer. */
	if (cpu < 0 && wakes && !s.late)
		cpu = pick_peer(p, tctx, &s);
	if (cpu < 0)
		return -1;
	*enq_flags = SCX_ENQ_PREEMPT;
	count_preemption(s.tier);
	return cpu;
}

s32 SCHED_OP(select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *tctx = lookup_task(p);
	u64 enq_flags;
	s32 cpu;

	if (!tctx)
		return prev_cpu;
	if (tctx->gates.slots[0])
		pace_admit(p, tctx, 0, SCX_ENQ_WAKEUP);
	cpu = place(p, tctx, prev_cpu, true, &enq_flags);
	if (cpu < 0)
		return prev_cpu;
	dsq_insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
	return cpu;
}

/*
 * I3: a CPU may have gone idle, or begun to run a lower tier, after place() looked. The kernel
 * inserts p only after enqueue returns, so that this look alone does not close the gap: whoever
 * begins a lower tier, or idles, compares queued_seq with what it saw last, and the second
 * count comes last.
 */
static __always_inline void look_again(struct task_struct *p, struct task_ctx *tctx, s32 prev_cpu)
{
	count_insertion(tctx->tier);
	/* Background preempts nobody: on a full node there is nothing to look for. */
	if (tctx->tier >= TEMPER_BACKGROUND && none_idle(p)) {
		count_insertion(tctx->tier);
		return;
	}
	call_cpu_near(p, tctx, prev_cpu);
	count_insertion(tctx->tier);
}

void SCHED_OP(enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 prev_cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx;
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, looked = false;
	u64 place_flags, parked = 0;
	s32 cpu = -1;

	one_copy(prev_cpu);
	if (is_bound_to_cpu(p)) {
		enqueue_bound(p, prev_cpu, enq_flags);
		return;
	}
	tctx = lookup_task(p);
	if (!tctx) {
		/* Before init_task: cannot be, but must not get lost. */
		dsq_insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
		return;
	}
	if (tctx->parked)
		parked = take_out(tctx, pace_now());
	if (tctx->gates.slots[0] && !pace_admit(p, tctx, parked, enq_flags))
		return;
	if (parked)
		count_waited(parked, pace_now());
	/*
	 * select_cpu found nothing for this wakeup, or was not asked: a task
	 * bound to one CPU, or one that ran and wants to go on. Background was
	 * most likely preempted, and whoever did that waits for this to end: it
	 * queues, and an idle CPU may fetch it.
	 */
	if (!was_asked(enq_flags) && tctx->tier < TEMPER_BACKGROUND) {
		/* Its only CPU is the one whose lock is held: nothing changes there meanwhile. */
		looked = p->nr_cpus_allowed == 1 && may_run_on(p, prev_cpu);
		if (!looked || !is_kept(prev_cpu, tctx->tier, wakes))
			cpu = place(p, tctx, prev_cpu, wakes, &place_flags);
		if (cpu >= 0) {
			insert_on(p, cpu, enq_flags | place_flags);
			return;
		}
	}
	queue_task(p, tctx, enq_flags);
	if (wakes)
		expect_peers(tctx->tier);
	if (looked)
		count_insertion(tctx->tier);
	else
		look_again(p, tctx, prev_cpu);
}

/*
 * p begins, or goes on, to run on cpu. What others must know is published with
 * full barriers and what they may have changed is read after that: of a waker,
 * or a critical sibling, and this CPU one sees the other.
 */
static __always_inline void publish(struct task_struct *p, struct task_ctx *tctx,
				    struct cpu_ctx *cctx, s32 cpu)
{
	u32 lend = plan_lend(tctx->generation);
	u32 tier = rank_on_cpu(p, tctx);

	if (cctx->tier != tier)
		clear_preemptible(cctx->tier, cpu);
	if (tier != TEMPER_CRITICAL)
		set_preemptible(tier, cpu);
	/* The barrier, for both. */
	__sync_lock_test_and_set(&cctx->tier, tier);
	if (tier == TEMPER_CRITICAL) {
		clear_core(cpu);
		if (tctx->fence && lend != TEMPER_LEND_PER_CORE)
			reclaim_fence(tctx->generation, lend, cpu);
		return;
	}
	if (tier >= TEMPER_TIERS || no_preempt)
		return;
	/* One that cannot migrate would come back at once, and be kicked without end. */
	if ((has_overtaken(tctx, tier, cpu) || is_overtaken(cctx, tier, cpu) ||
	     (!is_bound_to_cpu(p) && !may_serve(tctx->generation, lend, tier, cpu))) &&
	    clear_preemptible(tier, cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* May prev go on here, as far as fences and cores are concerned? */
static __always_inline bool may_stay(struct task_struct *prev, const struct task_ctx *tctx,
				     u32 lend, s32 cpu)
{
	u32 fence = tctx->fence;

	if (fence && fence_of_cpu(tctx->generation, cpu) != fence)
		return !fence_has_room(prev, tctx->generation, fence);
	return may_serve(tctx->generation, lend, tctx->tier, cpu);
}

/* prev goes on for another slice, paid for like the first. */
static __always_inline void keep_running(struct task_struct *prev, struct task_ctx *tctx,
					 struct cpu_ctx *cctx, s32 cpu)
{
	/* It takes nothing from anybody: others of its group may wait elsewhere. */
	bool free = has_own_cpus(prev, tctx->tier) && !is_tier_contended(tctx->tier, prev);

	start_yielding(tctx, cctx, cpu, charge_again(tctx, used_by_now(prev, tctx), free));
	prev->scx.slice = SLICE_NS;
	/*
	 * The kernel will not call running: its tier may be another now, somebody
	 * may have claimed this CPU, and a rescued task has had its slice.
	 */
	tctx->owed = 0;
	if (tctx->gates.slots[0])
		pace_keep(prev, tctx, cpu);
	publish(prev, tctx, cctx, cpu);
}

/*
 * I3, for an idle CPU that was woken and found nothing: it is back in the idle mask
 * after this, and the kernel does not say so (update_idle). Who queued meanwhile did
 * not see it: it looks once more from there.
 */
static __always_inline void stay_idle(s32 cpu, const struct task_struct *prev)
{
	/* pid 0 is the idle thread. */
	if (prev || ((struct task_struct *)bpf_get_current_task_btf())->pid)
		return;
	if (mask_has(&online, cpu) && !is_idle(cpu))
		scx_bpf_kick_cpu(cpu, 0);
}

void SCHED_OP(dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	u32 prev_tier = TEMPER_NO_TIER;
	struct task_ctx *tctx = NULL;
	u64 generation;
	s32 from;
	int tier;
	u32 lend;

	if (!cctx)
		return;
	/* prev may be about to sleep: only a queued one can go on. */
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		tctx = lookup_task(prev);
	/* A quiet node's CPU goes idle: the sooner, the sooner it can be woken. */
	if (!tctx && !cctx->rescues && !anybody_waits()) {
		stay_idle(cpu, prev);
		return;
	}
	/* About to go: it would wait for the slice of whoever came first. */
	if (tctx && tctx->leaving == LEAVING_BOUND && is_migration_disabled(prev)) {
		prev->scx.slice = SLICE_NS;
		return;
	}
	generation = current_generation();
	lend = plan_lend(generation);
	/* One that may not stay is enqueued after this, and placed anew, or parked. */
	if (tctx && (tctx->leaving >= LEAVING ||
		     (!may_stay(prev, tctx, lend, cpu) && !is_bound_to_cpu(prev))))
		tctx = NULL;
	if (tctx)
		prev_tier = tctx->tier;
	/* Seen by running, if there is something to fetch. */
	cctx->fetched_idle = !prev;
	if (cctx->rescues &&
	    serve_rescued(cpu, cctx,
			  prev_tier < TEMPER_BACKGROUND || higher_waits(TEMPER_BACKGROUND, cpu) ||
				  keeps_rescued_out(generation, lend, cpu)))
		return;

	for (tier = 0; tier < TEMPER_TIERS; tier++) {
		if (tier > prev_tier)
			break;
		if (tier == TEMPER_SYSTEM && cctx->released) {
			cctx->released = false;
			if ((has_smt || lend != TEMPER_LEND_PER_CORE) && anybody_waits())
				offer_released(generation, cpu);
		}
		if (!waits_for(tier, cpu))
			continue;
		if (tier == prev_tier) {
			from = due_llc(prev, tctx, tier, cpu);
			if (from >= 0 && dsq_move_to_local(tier_dsq(tier, from)))
				return;
			break;
		}
		if (may_serve(generation, lend, tier, cpu) && consume_tier(tier, cpu))
			return;
	}
	if (prev && tctx && prev_tier < TEMPER_TIERS) {
		keep_running(prev, tctx, cctx, cpu);
		return;
	}
	/* Nothing else runs here: no reason to space out rescues, unless it is kept free. */
	if (cctx->rescues && serve_rescued(cpu, cctx, keeps_rescued_out(generation, lend, cpu)))
		return;
	cctx->fetched_idle = false;
	stay_idle(cpu, prev);
}

void SCHED_OP(running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	struct task_ctx *tctx = lookup_task(p);
	u64 now = scx_bpf_now(), queued;
	bool by_tag;

	if (!cctx || !tctx)
		return;
	queued = left_queue(tctx, cctx, cpu, now);
	if (queued)
		count_wait(queued_tier(queued), now - queued_at(queued));
	tctx->started_at = now;
	/* Else it has no tag, or, as a plan came while it waited, one of another tier's clock. */
	by_tag = queued && queued_tier(queued) == tctx->tier;
	begin_service(p, tctx, cctx, cpu, by_tag, now);
	if (tctx->gates.slots[0])
		pace_running(p, tctx, cpu);
	publish(p, tctx, cctx, cpu);
	mend_clock(cctx, cpu);
	if (cctx->bound_waits || may_be_first_by_chance(tctx, queued))
		make_way(p, tctx, cctx, cpu, queued);
}

void SCHED_OP(stopping, struct task_struct *p, bool runnable)
{
	/* May run on another CPU than the task's. */
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);
	struct task_ctx *tctx = try_lookup_task(p);
	u64 used;

	if (!cctx || !tctx)
		return;
	stop_yielding(cctx, cpu);
	if (cctx->tier == TEMPER_CRITICAL)
		cctx->released = true;
	else if (cctx->tier < TEMPER_TIERS && !clear_preemptible(cctx->tier, cpu) && runnable)
		count_preempted(cctx->tier);
	cctx->tier = TEMPER_NO_TIER;
	used = used_by_now(p, tctx);
	tctx->exec_at = p->se.sum_exec_runtime;
	note_run(tctx, used, runnable);
	if (tctx->gates.slots[0])
		pace_stopping(p, tctx, used, runnable);
	settle_charge(p, tctx, used, runnable);
	tctx->owed -= !runnable || used > tctx->owed ? tctx->owed : used;
}

/*
 * I3, for a CPU that goes idle: its bit in the idle mask is set by now. Of an
 * enqueue that found it busy and this look at the queues one sees the other.
 * One on its way offline is let go: it dispatches no more, and kicked it never dies.
 */
void SCHED_OP(update_idle, s32 cpu, bool idle)
{
	struct cpu_ctx *cctx;

	if (!idle)
		return;
	/* The last to run was put back there, and the kernel idles all the same (docs/traps.md). */
	if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0)
		scx_bpf_kick_cpu(cpu, 0);
	if (!mask_has(&online, cpu)) {
		scx_bpf_test_and_clear_cpu_idle(cpu);
		return;
	}
	cctx = try_lookup_cpu(cpu);
	if (!cctx)
		return;
	/* The barrier: setting a bit of the idle mask is none on every machine. */
	__sync_lock_test_and_set(&cctx->tier, TEMPER_NO_TIER);
	if (is_overtaken(cctx, TEMPER_TIERS, cpu) || rescue_is_due(cctx, cpu))
		scx_bpf_kick_cpu(cpu, 0);
}

/*
 * I3, for whoever ran on a CPU, or was placed there, when a real-time thread takes it: the
 * kernel keeps them in that CPU's own queue. v7.2 calls it deprecated, in favour of a look
 * at each switch, which would cost all of them.
 */
void SCHED_OP(cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);

	if (!cctx)
		return;
	cctx->releases = true;
	reenqueue_local(cpu);
	cctx->releases = false;
}

s32 SCHED_OP_SLEEPABLE(init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *tctx;

	tctx = bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!tctx)
		return -12; /* ENOMEM */
	tctx->tier = TEMPER_SYSTEM;
	return 0;
}

/* p comes, new or from another class: what it used there is not ours to charge. */
void SCHED_OP(enable, struct task_struct *p)
{
	struct task_ctx *tctx = try_lookup_task(p);

	if (tctx)
		tctx->exec_at = p->se.sum_exec_runtime;
}

/* p leaves for another class, or exits: it may have been queued. */
void SCHED_OP(disable, struct task_struct *p)
{
	struct task_ctx *tctx = try_lookup_task(p);

	if (!tctx)
		return;
	uncount_queued(tctx);
	forget_thread(p, tctx);
}

/* A child starts in its parent's tier (resolve_group): only the share is new. */
s32 SCHED_OP_SLEEPABLE(cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct group_ctx *group;

	group = bpf_cgrp_storage_get(&group_ctxs, cgrp, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!group)
		return -12; /* ENOMEM */
	group->weight = args->weight;
	group->tier = TEMPER_NO_TIER;
	if (bpf_core_field_exists(args->bw_quota_us))
		set_limit(group, cgrp->kn->id, args->bw_period_us, args->bw_quota_us,
			  args->bw_burst_us);
	return 0;
}

void SCHED_OP(cgroup_exit, struct cgroup *cgrp)
{
	struct group_ctx *group = bpf_cgrp_storage_get(&group_ctxs, cgrp, NULL, 0);

	if (group)
		drop_limit(group);
}

/* Since v6.17; before, nobody tells. */
void SCHED_OP(cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct group_ctx *group = bpf_cgrp_storage_get(&group_ctxs, cgrp, NULL, 0);

	if (group)
		set_limit(group, cgrp->kn->id, period_us, quota_us, burst_us);
}

/* The css_set's address says so too, but an address may come back. */
void SCHED_OP(cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct task_ctx *tctx = try_lookup_task(p);

	if (tctx)
		tctx->css_set = 0;
}

void SCHED_OP(cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	struct group_ctx *group = bpf_cgrp_storage_get(&group_ctxs, cgrp, NULL, 0);

	if (group)
		change_weight(group, weight);
}

/* cpu.idle: the least weight there is. Unset, the weight is the default's, as the kernel has it. */
void SCHED_OP(cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	struct group_ctx *group = bpf_cgrp_storage_get(&group_ctxs, cgrp, NULL, 0);

	if (group)
		change_weight(group, idle ? 1 : DEFAULT_WEIGHT);
}

/*
 * Hotplug: that these ops exist is what keeps the kernel from ejecting us.
 * An offline CPU leaves the idle mask and runs nothing, so that no search finds it.
 */
void SCHED_OP(cpu_online, s32 cpu)
{
	struct cpu_ctx *cctx = try_lookup_cpu(cpu);

	if (cctx)
		cctx->tier = TEMPER_NO_TIER;
	set_online(cpu, true);
}

/* Tasks in its rescue queue move on with the next pass of the timer. */
void SCHED_OP(cpu_offline, s32 cpu)
{
	int tier;

	set_online(cpu, false);
	for (tier = 0; tier < TEMPER_TIERS; tier++)
		clear_preemptible(tier, cpu);
}

s32 SCHED_OP_SLEEPABLE(init)
{
	int llc, cpu, tier;
	s32 err;

	for_each_num(llc, 0, TEMPER_MAX_LLCS) {
		if (llc >= nr_llcs)
			break;
		for (tier = 0; tier < TEMPER_TIERS; tier++) {
			err = scx_bpf_create_dsq(tier_dsq(tier, llc), -1);
			if (err)
				return err;
		}
	}
	for_each_num(cpu, 0, TEMPER_MAX_CPUS) {
		struct cpu_ctx *cctx;

		if (cpu >= nr_cpus)
			break;
		cctx = try_lookup_cpu(cpu);
		if (cctx)
			cctx->tier = cctx->yields_in = TEMPER_NO_TIER;
		set_online(cpu, is_online(cpu));
		err = scx_bpf_create_dsq(rescue_dsq(cpu), -1);
		if (err)
			return err;
	}
	init_wanted();
	init_pace();
	init_peers();
	err = init_gates();
	if (err)
		return err;
	return start_rescue_timer();
}

void SCHED_OP(exit, struct scx_exit_info *info)
{
	record_exit(info);
}

SEC(".struct_ops.link")
struct sched_ext_ops temper_ops = {
	.select_cpu = (void *)temper_select_cpu,
	.enqueue = (void *)temper_enqueue,
	.dispatch = (void *)temper_dispatch,
	.running = (void *)temper_running,
	.stopping = (void *)temper_stopping,
	.update_idle = (void *)temper_update_idle,
	.cpu_release = (void *)temper_cpu_release,
	.init_task = (void *)temper_init_task,
	.enable = (void *)temper_enable,
	.disable = (void *)temper_disable,
	.cgroup_init = (void *)temper_cgroup_init,
	.cgroup_exit = (void *)temper_cgroup_exit,
	.cgroup_set_bandwidth = (void *)temper_cgroup_set_bandwidth,
	.cgroup_move = (void *)temper_cgroup_move,
	.cgroup_set_weight = (void *)temper_cgroup_set_weight,
	.cgroup_set_idle = (void *)temper_cgroup_set_idle,
	.cpu_online = (void *)temper_cpu_online,
	.cpu_offline = (void *)temper_cpu_offline,
	.init = (void *)temper_init,
	.exit = (void *)temper_exit,
};
