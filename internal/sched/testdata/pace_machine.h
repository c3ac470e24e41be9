// SPDX-License-Identifier: Apache-2.0
/*
 * A machine for the pacer: CPUs whose clocks differ, one queue for them, threads
 * and their cgroups, timers that come late. What sched.bpf.c does around the
 * pacer is here as well.
 */
#ifndef PACE_MACHINE_H
#define PACE_MACHINE_H

#include "pace_kernel.h"

#define MAX_CPUS 16
#define NR_GROUPS 4 /* a pod, two containers of it, and a cgroup in the first */
#define NR_SLOTS (NR_GROUPS + 1)
#define SKEW_NS 100 /* how far a CPU's clock is from the true one, at most */
#define LATE_NS 20000ULL /* how late a timer comes */
#define UNBIND_NS 5000 /* how long work at the return to user mode takes */

enum place { SLEEPS, READY, ON_CPU, PARKED };

/* What the promises know of a thread: between two ends of its grants. */
struct stay_seen {
	bool on; /* it runs below limits */
	u64 began, clock; /* the true time, and the pacer's */
	u64 granted;
	struct gate_chain gates;
};

struct thread {
	struct task_struct task; /* first: the kernel's pointer is ours */
	struct task_ctx ctx;
	struct return_work work;
	enum place place;
	u32 cpu;
	u64 wakes_at;
	u64 vtime; /* in a gate's queue */
	u64 wants; /* CPU time until it sleeps */
	u64 stay; /* CPU time until it is in user mode */
	bool asked; /* work waits for its return to user mode */
	bool works; /* is in that work, and ends it after its stay */
	bool talks; /* sleeps often and briefly */
	struct stay_seen seen;
	bool keeps[TEMPER_GATE_DEPTH]; /* at these of its gates, asleep */
	u64 parked_at, parked_clock; /* waits since */
	u64 here_at; /* at this gate */
	u64 strays; /* CPU time that it ran on debt in user mode */
	bool wanted; /* its CPUs are: whoever dispatches there looks into the tier's queue */
};

struct cpu {
	struct thread *runs;
	s64 skew;
	u64 slice_ends;
	u64 taken_until; /* another tier's */
	bool kicked;
};

static u64 rng, now; /* now: the true time */
static u32 stolen; /* percent of it that is charged to no thread */
static u32 here; /* the CPU that executes the pacer */
static struct cpu cpus[MAX_CPUS];
static struct thread threads[MAX_THREADS];
static int nr_threads;
static struct cgroup cgroups[NR_GROUPS];
static struct css_set css_sets[NR_GROUPS];
static struct group_ctx groups[NR_GROUPS];
static struct thread *ready[MAX_THREADS], *parked[NR_SLOTS][MAX_THREADS];
static int nr_ready, nr_parked[NR_SLOTS];
static struct gate gate_store[NR_SLOTS];
static struct grant_timer timer_store[MAX_CPUS];
static u32 free_slots[NR_SLOTS];
static int nr_free;
static struct thread idle;

static u64 draw(u64 below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % below;
}

static struct thread *thread_of(const struct task_struct *p)
{
	return (struct thread *)p;
}

static u64 scx_bpf_now(void)
{
	return now + cpus[here].skew;
}

/* Who looks again and again, as leave does, waits for it to go on. */
static int looks;

static u64 bpf_ktime_get_ns(void)
{
	static u64 at;

	looks = at == now && looks < 64 ? looks + 1 : 1;
	at = now;
	return scx_bpf_now() + (looks < 64 ? 0 : LEAVE_WAIT_NS);
}

static struct task_struct *bpf_get_current_task_btf(void)
{
	return cpus[here].runs ? &cpus[here].runs->task : &idle.task;
}

static u32 bpf_get_smp_processor_id(void)
{
	return here;
}

static void scx_bpf_kick_cpu(u32 cpu, u64 flags)
{
	if (flags & SCX_KICK_PREEMPT)
		cpus[cpu].kicked = true;
}

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	u32 k;

	if (map == &return_works)
		return &thread_of((struct task_struct *)*(const u64 *)key)->work;
	k = *(const u32 *)key;
	if (map == &gates)
		return k < NR_SLOTS ? &gate_store[k] : NULL;
	if (map == &grant_timers)
		return k < nr_cpus ? &timer_store[k] : NULL;
	return NULL;
}

static long bpf_map_pop_elem(void *map, u32 *value)
{
	if (map != &free_gates || !nr_free)
		return -1;
	*value = free_slots[0];
	memmove(free_slots, free_slots + 1, --nr_free * sizeof(*free_slots));
	return 0;
}

static long bpf_map_push_elem(void *map, const u32 *value, u64 flags)
{
	if (map == &free_gates && *value < NR_SLOTS)
		free_slots[nr_free++] = *value;
	return flags;
}

static void *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags)
{
	return map == &task_ctxs && p != &idle.task && !value && !flags ? &thread_of(p)->ctx : NULL;
}

static void *bpf_cgrp_storage_get(void *map, struct cgroup *cgrp, void *value, u64 flags)
{
	(void)value, (void)flags;
	return map == &group_ctxs && cgrp ? &groups[cgrp - cgroups] : NULL;
}

static long bpf_timer_start(struct bpf_timer *timer, u64 ns, u64 flags)
{
	timer->at = now + ns + draw(draw(2) ? LATE_NS : LATE_NS / 32);
	return flags;
}

/* Now and then there is no memory for it. */
static int ask_at_return(struct task_struct *p)
{
	struct thread *t = thread_of(p);

	if (t->asked || draw(16) == 0)
		return -16;
	t->asked = true;
	if (!t->stay)
		t->stay = draw(LEAVE_WAIT_NS);
	return 0;
}

static void remove_from(struct thread **queue, int *n, const struct thread *t)
{
	int i;

	for (i = 0; i < *n && queue[i] != t; i++)
		;
	if (i == *n)
		abort();
	memmove(queue + i, queue + i + 1, (--*n - i) * sizeof(*queue));
}

static void insert_ready(struct thread *t)
{
	t->place = READY;
	ready[nr_ready++] = t;
}

static void insert_parked(struct thread *t, u32 slot, u64 vtime)
{
	struct thread **queue = parked[slot];
	int i = nr_parked[slot]++;

	for (; i > 0 && vtime_before(vtime, queue[i - 1]->vtime); i--)
		queue[i] = queue[i - 1];
	queue[i] = t;
	t->vtime = vtime;
	t->place = PARKED;
}

static s32 scx_bpf_dsq_nr_queued(u64 dsq)
{
	return nr_parked[(u32)dsq];
}

static int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq, u64 flags)
{
	it->dsq = dsq;
	it->next = 0;
	it->nr = nr_parked[(u32)dsq];
	for (int i = 0; i < it->nr; i++)
		it->tasks[i] = &parked[(u32)dsq][i]->task;
	return flags;
}

static struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	return it->next < it->nr ? it->tasks[it->next++] : NULL;
}

/* Of the promises. */
static void fail(const char *what, u32 slot);
static void after(struct thread *t);
static void note_parked(struct thread *t, u32 slot);
static void note_through(struct thread *t, u32 slot);

static void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
				     u64 flags)
{
	struct thread *t = thread_of(p);

	(void)slice, (void)flags;
	t->parked_at = now;
	t->parked_clock = parked_since(vtime);
	note_parked(t, (u32)dsq);
	insert_parked(t, (u32)dsq, vtime);
}

static int want_cpus(struct task_struct *p, u32 tier)
{
	thread_of(p)->wanted = true;
	return tier;
}

static bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
				   u64 flags)
{
	struct thread *t = thread_of(p);

	(void)flags;
	remove_from(parked[(u32)it->dsq], &nr_parked[(u32)it->dsq], t);
	if (dsq) {
		note_parked(t, (u32)dsq);
		insert_parked(t, (u32)dsq, it->vtime);
	} else {
		if (!t->wanted)
			fail("a thread was let through to CPUs that do not look", (u32)it->dsq);
		t->wanted = false;
		note_through(t, (u32)it->dsq);
		insert_ready(t);
	}
	return true;
}

/* lookup_task of sched.bpf.c. */
static struct task_ctx *ctx_of(struct thread *t)
{
	return lookup_task(&t->task);
}

/* As sched.bpf.c's enqueue. False: bound to its CPU, and goes on there. */
static bool enqueue(struct thread *t, u64 flags)
{
	struct task_ctx *tctx;
	u64 waited = 0;

	if (is_bound_to_cpu(&t->task)) {
		put_off_leave(&t->task);
		return false;
	}
	tctx = ctx_of(t);
	if (tctx->parked)
		waited = take_out(tctx, pace_now());
	if (!tctx->gates.slots[0] || pace_admit(&t->task, tctx, waited, flags)) {
		count_waited(waited, pace_now());
		insert_ready(t);
	}
	after(t);
	return true;
}

static void wake(struct thread *t)
{
	here = draw(nr_cpus);
	t->task.__state = 0;
	/* select_cpu asks first. */
	if (draw(2) && ctx_of(t)->gates.slots[0]) {
		pace_admit(&t->task, &t->ctx, 0, SCX_ENQ_WAKEUP);
		after(t);
	}
	enqueue(t, SCX_ENQ_WAKEUP);
}

/* As running. */
static void start(struct thread *t, u32 cpu)
{
	struct task_ctx *tctx;

	here = cpu;
	cpus[cpu].runs = t;
	t->place = ON_CPU;
	t->cpu = cpu;
	tctx = ctx_of(t);
	tctx->started_at = scx_bpf_now();
	if (tctx->gates.slots[0])
		pace_running(&t->task, tctx, cpu);
	after(t);
}

/* As stopping. */
static void stop(struct thread *t, bool runnable)
{
	struct task_ctx *tctx = &t->ctx;
	u64 used = t->task.se.sum_exec_runtime - tctx->exec_at;

	here = t->cpu;
	tctx->exec_at = t->task.se.sum_exec_runtime;
	if (tctx->gates.slots[0])
		pace_stopping(&t->task, tctx, used, runnable);
	after(t);
}

/* The kernel binds t to its CPU, or unbinds it. */
static void change_mask(struct thread *t, const u64 *mask)
{
	stop(t, false);
	t->task.cpus_ptr = mask;
	start(t, t->cpu);
}

/* The CPU schedules: whoever runs on it is taken off it. */
static void preempt(u32 cpu)
{
	static const u64 one_cpu;
	struct thread *t = cpus[cpu].runs;

	if (!t)
		return;
	if (t->task.migration_disabled && !is_bound_by_kernel(&t->task)) {
		change_mask(t, &one_cpu);
		if (draw(2) && t->ctx.leaving == LEAVING_BOUND)
			return; /* kept; else an RT thread came */
	}
	stop(t, true);
	cpus[cpu].runs = NULL;
	if (!enqueue(t, 0))
		start(t, cpu);
}

static void obey_kicks(void)
{
	for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
		while (cpus[cpu].kicked) {
			cpus[cpu].kicked = false;
			preempt(cpu);
		}
	}
}

static void dispatch(void)
{
	for (u32 cpu = 0; cpu < nr_cpus && nr_ready; cpu++) {
		struct thread *t = ready[0];

		if (cpus[cpu].runs || cpus[cpu].taken_until > now)
			continue;
		remove_from(ready, &nr_ready, t);
		cpus[cpu].slice_ends = now + SLICE_NS;
		start(t, cpu);
	}
}

/* The slice is over: as dispatch of sched.bpf.c, when it keeps the thread. */
static void end_slice(u32 cpu)
{
	struct thread *t = cpus[cpu].runs;

	cpus[cpu].slice_ends = now + SLICE_NS;
	here = cpu;
	if (nr_ready || ctx_of(t)->leaving >= LEAVING) {
		preempt(cpu);
		return;
	}
	if (t->ctx.gates.slots[0])
		pace_keep(&t->task, &t->ctx, cpu);
	after(t);
}

/* It is about to enter user mode, and does its work first. */
static void return_to_user(struct thread *t)
{
	u32 cpu = t->cpu;

	here = cpu;
	if (t->works) {
		t->works = false;
		if (is_bound_by_kernel(&t->task))
			change_mask(t, &t->task.cpus_mask);
		t->task.migration_disabled = 0;
		return;
	}
	t->asked = false;
	t->works = true;
	t->stay = draw(UNBIND_NS);
	t->task.migration_disabled = 1;
	leave(NULL, NULL, NULL);
	after(t);
}

static void fall_asleep(struct thread *t, u64 ns)
{
	t->task.__state = 1;
	stop(t, false);
	cpus[t->cpu].runs = NULL;
	t->place = SLEEPS;
	t->wakes_at = now + ns;
}

#endif
