// SPDX-License-Identifier: GPL-2.0
/*
 * The probe: who used the CPUs, and how long did tasks wait for one.
 *
 * It looks at tracepoints only, so that it measures the kernel's own scheduler
 * and Temper by the same definitions. It needs no sched_ext: any kernel from
 * 6.12 on will do.
 *
 *   sched_waking ──► waits since, woken ─────┐
 *   sched_switch ──► prev: waits since ──────┤
 *                    next: now - since ──────┴──► histogram, worst wait, inversion
 *                    CPU:  ledger
 *
 * Wakeup delay runs from the waker's call (sched_waking, not sched_wakeup: the
 * way to another CPU counts) until the switch to the woken task. Worst wait
 * counts preempted tasks as well. Only tasks of the tiers are timed: stop,
 * deadline and real-time tasks outrank every tier.
 *
 * Inversion: while a critical task waits, a lower tier runs on a CPU it may
 * use. The interval is, of all CPUs allowed to the task, the longest overlap of
 * its wait with that CPU's last stretch of lower tiers, less RECLAIM_NS.
 *   - A wait is judged when it ends; one that never ends shows in no figure.
 *   - Of a CPU's stretches only the last is known, and only one CPU's counts:
 *     the sum is a lower bound. A single interval, such as a queue that is
 *     passed over, is measured whole.
 *   - Several tasks that wait for one CPU count once each.
 *   - Per-CPU kernel threads outrank no tier and are outranked by none.
 */
#include "intf.h"
#include "kernel.bpf.h"
#include "tier.bpf.h"
#include "probe_hist.bpf.h"
#include "probe_ledger.bpf.h"
#include "probe_task.bpf.h"

char _license[] SEC("license") = "GPL";

TEMPER_EXPORT(enum, temper_bucket);
TEMPER_EXPORT(struct, temper_probe_misses);

/*
 * What taking a CPU by preemption costs on any scheduler: the interrupt between
 * CPUs, the switch. Below, a wait is no inversion. Twice the 16 us median of a
 * preempting wakeup in the laboratory.
 */
#define RECLAIM_NS (32ULL * 1000)

/* Stop, deadline and real-time tasks are below; MAX_RT_PRIO since 2.6. */
#define FIRST_FAIR_PRIO 100

/* Possible CPUs. Set by the loader. */
const volatile u32 nr_cpus = 1;

/* Tier -> delays, one copy per CPU. Read by internal/sched.Probe; never reset. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TEMPER_TIERS);
	__type(key, u32);
	__type(value, struct temper_tier_delay);
} tier_delays SEC(".maps");

static __always_inline bool is_per_cpu_kthread(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

_Static_assert(TEMPER_CRITICAL + 1 == TEMPER_TIME_CRITICAL &&
		       TEMPER_BACKGROUND + 1 == TEMPER_TIME_BACKGROUND,
	       "buckets are in the order of the tiers");

static __always_inline u32 bucket_of(const struct task_struct *p, u32 tier, u32 fence,
				     u32 cpu_fence)
{
	if (p->prio < FIRST_FAIR_PRIO)
		return TEMPER_TIME_OTHER;
	if (!cpu_fence)
		return tier + 1;
	if (tier == TEMPER_CRITICAL)
		return fence == cpu_fence ? TEMPER_TIME_OWN : TEMPER_TIME_CRITICAL;
	if (is_per_cpu_kthread(p))
		return TEMPER_TIME_SYSTEM;
	return TEMPER_TIME_LENT_SYSTEM - TEMPER_SYSTEM + tier;
}

/* A CPU looks up its fence once in a plan. */
static __always_inline u32 fence_of_this_cpu(struct temper_cpu_time *cpu, u64 generation, u32 id)
{
	if (cpu->plan != (u32)generation) {
		cpu->plan = generation;
		cpu->fence = fence_of_cpu(generation, id);
	}
	return cpu->fence;
}

static __always_inline bool is_lower_tier(const struct task_struct *p, u32 bucket)
{
	return bucket >= TEMPER_TIME_SYSTEM && bucket <= TEMPER_TIME_LENT_BACKGROUND &&
	       !is_per_cpu_kthread(p);
}

/* Raise a maximum that several CPUs write. Losing the race thrice needs three longer waits. */
static __always_inline void raise(u64 *max, u64 value)
{
	u64 seen = *(volatile u64 *)max;
	int i;

	for (i = 0; i < 3 && value > seen; i++)
		seen = __sync_val_compare_and_swap(max, seen, value);
}

static __noinline void count_inversion(struct task_struct *p, struct temper_tier_delay *delay,
				       u64 since, u64 now)
{
	u64 longest = 0;
	int i;

	for_each_num(i, 0, TEMPER_MAX_CPUS) {
		struct temper_cpu_time *cpu;
		u64 from, until;

		if (i >= nr_cpus)
			break;
		cpu = try_lookup_ledger(i);
		if (!cpu || !cpu->lower_since)
			continue;
		until = *(volatile u64 *)&cpu->lower_until ?: now;
		from = *(volatile u64 *)&cpu->lower_since;
		if (from < since)
			from = since;
		if ((s64)(until - from) <= (s64)longest)
			continue;
		if (bpf_cpumask_test_cpu(i, p->cpus_ptr))
			longest = until - from;
	}
	if (longest <= RECLAIM_NS)
		return;
	longest -= RECLAIM_NS;
	delay->inversion_ns += longest;
	if (longest > delay->inversion_max_ns)
		delay->inversion_max_ns = longest;
}

/* p ends a wait by running. */
static __always_inline void count_wait(struct task_struct *p, struct probe_task *t, u64 stamp,
				       u64 now)
{
	struct temper_group_delay *group = try_lookup_slot(t->slot);
	struct temper_tier_delay *delay;
	u64 since = stamp & ~WOKEN;
	u64 wait = now - since;
	u32 tier = t->tier;
	u32 bucket;

	/* The clocks of two CPUs may differ by a little. */
	if ((s64)wait < 0)
		wait = 0;
	delay = bpf_map_lookup_elem(&tier_delays, &tier);
	if (!delay)
		return;
	if (stamp & WOKEN) {
		bucket = hist_bucket(wait);
		if (bucket >= TEMPER_HIST_BUCKETS)
			return;
		delay->wakeup_delay.counts[bucket]++;
		delay->wakeup_delay.sum_ns += wait;
		if (wait > delay->wakeup_delay.max_ns)
			delay->wakeup_delay.max_ns = wait;
		if (group) {
			__sync_fetch_and_add(&group->wakeup_delay.counts[bucket], 1);
			__sync_fetch_and_add(&group->wakeup_delay.sum_ns, wait);
			raise(&group->wakeup_delay.max_ns, wait);
		}
	} else {
		if (wait > delay->worst_requeue_ns)
			delay->worst_requeue_ns = wait;
		if (group)
			raise(&group->worst_requeue_ns, wait);
	}
	if (tier == TEMPER_CRITICAL && wait > RECLAIM_NS)
		count_inversion(p, delay, since, now);
}

static __always_inline int note_waking(struct task_struct *p)
{
	struct probe_task *t;

	/*
	 * Woken before it slept: it runs, and no switch will end the wait. Unless EEVDF keeps
	 * it on the runqueue though it sleeps.
	 */
	if (p->on_cpu && p->on_rq &&
	    !(bpf_core_field_exists(p->se.sched_delayed) && p->se.sched_delayed))
		return 0;
	t = bpf_task_storage_get(&probe_tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* Preempted on its way to sleep, it waits already. */
	if (t && !t->waits_since)
		t->waits_since = bpf_ktime_get_ns() | WOKEN;
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(probe_waking, struct task_struct *p)
{
	return note_waking(p);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(probe_wakeup_new, struct task_struct *p)
{
	return note_waking(p);
}

/*
 * The group pays for the time that the CPU's last task ran. In this order: who
 * reads in between adds nothing to the old group.
 */
static __always_inline void switch_group(struct temper_cpu_time *cpu, u32 slot, u64 now)
{
	struct temper_group_delay *group = try_lookup_slot(cpu->slot);

	if (group)
		__sync_fetch_and_add(&group->cpu_ns, now - cpu->switched_at);
	*(volatile u64 *)&cpu->switched_at = now;
	*(volatile u32 *)&cpu->slot = slot;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(probe_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 id = bpf_get_smp_processor_id();
	struct temper_cpu_time *cpu = try_lookup_ledger(id);
	u32 bucket = TEMPER_TIME_IDLE, slot = NO_SLOT;
	struct probe_task *t;
	u64 stamp = 0;
	u64 now;

	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	if (!cpu->start_ns)
		start_ledger(cpu, now);
	if ((preempt || !prev_state) && prev->pid) {
		t = bpf_task_storage_get(&probe_tasks, prev, NULL, 0);
		if (t)
			t->waits_since = now & ~WOKEN;
	}
	t = NULL;
	if (next->pid) {
		bucket = TEMPER_TIME_SYSTEM;
		t = lookup_member(next);
		if (t) {
			bucket = bucket_of(next, t->tier, t->fence,
					   fence_of_this_cpu(cpu, t->generation, id));
			slot = t->slot;
			stamp = t->waits_since;
			t->waits_since = 0;
		}
	}
	note_lower(cpu, is_lower_tier(next, bucket), now);
	switch_group(cpu, slot, now);
	cpu->context = bucket;
	cpu->irq_depth = 0;
	enter_bucket(cpu, bucket, now);
	if (t && stamp && bucket != TEMPER_TIME_OTHER)
		count_wait(next, t, stamp, now);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(probe_softirq_entry)
{
	enter_irq();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(probe_softirq_exit)
{
	leave_irq();
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(probe_irq_entry)
{
	enter_irq();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(probe_irq_exit)
{
	leave_irq();
	return 0;
}

SEC("tp_btf/cgroup_release")
int BPF_PROG(probe_cgroup_release, struct cgroup *cgrp)
{
	forget_group(cgrp->kn->id);
	return 0;
}

/*
 * Who runs on this CPU, by the ids of its cgroup and those above: resolve_group
 * without a pointer to a cgroup, which this program type does not get.
 */
static __always_inline u64 resolve_current(u64 generation, u32 *tier, u32 *fence)
{
	struct temper_group_key key = { .slot = generation & 1 };
	bool next_is_group = false;
	u64 group_id = 0;
	int i;

	*tier = TEMPER_SYSTEM;
	*fence = 0;
	for_each_num(i, 0, MAX_CGROUP_DEPTH) {
		struct temper_group *group;

		key.cgroup = bpf_get_current_ancestor_cgroup_id(i);
		if (!key.cgroup)
			break;
		if (!i || next_is_group)
			group_id = key.cgroup;
		next_is_group = !i; /* unnamed: every top-level cgroup is a group */
		group = generation ? bpf_map_lookup_elem(&plan_groups, &key) : NULL;
		if (!group)
			continue;
		*tier = group->tier < TEMPER_TIERS ? group->tier : TEMPER_SYSTEM;
		*fence = group->fence;
		group_id = key.cgroup;
		next_is_group = group->each_child;
	}
	return group_id;
}

/*
 * Run by the loader on each CPU (BPF_PROG_RUN), when it starts and when a plan
 * is applied: what runs there may run for long before it switches.
 */
SEC("raw_tp/sched_switch")
int probe_visit(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u32 id = bpf_get_smp_processor_id();
	struct temper_cpu_time *cpu = try_lookup_ledger(id);
	u32 bucket = TEMPER_TIME_IDLE, slot = NO_SLOT, tier, fence, depth;
	u64 generation = current_generation();
	u64 now, group;

	if (!cpu)
		return 0;
	/* As in enter_irq: interrupts may come in between. */
	depth = *(volatile u32 *)&cpu->irq_depth;
	*(volatile u32 *)&cpu->irq_depth = depth + 1;
	now = bpf_ktime_get_ns();
	if (!cpu->start_ns)
		start_ledger(cpu, now);
	if (p->pid) {
		group = resolve_current(generation, &tier, &fence);
		bucket = bucket_of(p, tier, fence, fence_of_this_cpu(cpu, generation, id));
		slot = slot_of(group, tier);
	}
	note_lower(cpu, is_lower_tier(p, bucket), now);
	switch_group(cpu, slot, now);
	cpu->context = bucket;
	if (!depth)
		enter_bucket(cpu, bucket, now);
	*(volatile u32 *)&cpu->irq_depth = depth;
	return 0;
}

/* Run by a reader on each CPU: maxima begin anew. Whoever is woken now counts after it. */
SEC("raw_tp/sched_switch")
int probe_mark(void *ctx)
{
	u32 tier;

	for (tier = 0; tier < TEMPER_TIERS; tier++) {
		u32 key = tier;
		struct temper_tier_delay *delay = bpf_map_lookup_elem(&tier_delays, &key);

		if (!delay)
			continue;
		delay->wakeup_delay.max_ns = 0;
		delay->worst_requeue_ns = 0;
		delay->inversion_max_ns = 0;
	}
	return 0;
}
