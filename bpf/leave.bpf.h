/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a thread whose grant is over, or that has none, gets to where it may be
 * parked: its return to user mode.
 */
#ifndef TEMPER_LEAVE_BPF_H
#define TEMPER_LEAVE_BPF_H

/* Longer than a CPU's kick of itself takes. */
#define LEAVE_WAIT_NS 5000
/* Kernels before 6.18 cannot tell: a thread on debt is taken to be in user mode after that. */
#define DEBT_SLICE_NS (200ULL * 1000)

/* Ends the grant in use on a CPU. */
struct grant_timer {
	struct bpf_timer timer;
	u64 fires_at; /* 0: it was not started */
	u64 ends_at; /* of the grant */
	u32 pid; /* whose */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TEMPER_MAX_CPUS);
	__type(key, u32);
	__type(value, struct grant_timer);
} grant_timers SEC(".maps");

struct return_work {
	struct bpf_task_work work;
};

/*
 * A thread's address -> its work at the next return to user mode. Deleted when the thread
 * exits; by then its id may be another one (exec).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, u64);
	__type(value, struct return_work);
} return_works SEC(".maps");

/* A grant that ends so soon has ended: less is not worth a timer. */
#define GRANT_REST_NS 2000

/*
 * The end of the grant, or of the debt, in use on this CPU. Failing that, the
 * slice's. Who runs for a moment leaves the timer of those before it as it is: when
 * it fires it is started again.
 */
static __always_inline void end_grant_in(u32 cpu, u32 pid, u64 ns)
{
	struct grant_timer *t = bpf_map_lookup_elem(&grant_timers, &cpu);
	u64 now = pace_now();

	if (!t)
		return;
	t->pid = pid;
	t->ends_at = now + ns;
	if (fires_by(t->fires_at, t->ends_at, now))
		return;
	t->fires_at = bpf_timer_start(&t->timer, ns, BPF_F_TIMER_CPU_PIN) ? 0 : t->ends_at;
}

/*
 * The running thread has to leave, and is on its way to user mode. Parked in
 * here it could go on on this CPU alone, for migration is disabled. So its CPU
 * schedules twice: in here, for which the kernel binds the thread to it, and when
 * the kernel unbinds it at the end of this work (pace_running). Kernels that are
 * not preempted do so once, after the work.
 */
static int leave(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *tctx = try_lookup_task(p);
	u64 until;
	int i;

	/* It slept on its way and has a grant by now, or its limit is gone. */
	if (!tctx || tctx->leaving != ASKED_TO_LEAVE || !tctx->paced || (p->flags & PF_EXITING))
		return 0;
	tctx->leaving = LEAVING;
	scx_bpf_kick_cpu(bpf_get_smp_processor_id(), SCX_KICK_PREEMPT);
	/* The kick must not find it in its next system call. */
	until = pace_now() + LEAVE_WAIT_NS;
	for_each_num(i, 0, 1024) {
		if (*(volatile u32 *)&tctx->leaving != LEAVING || pace_now() >= until)
			break;
	}
	return 0;
}

/* p is in the work that begins its leave, and can go on on its own CPU alone. */
static __always_inline bool leaves_bound(const struct task_struct *p, const struct task_ctx *tctx)
{
	return has_task_work && tctx->leaving >= LEAVING && is_migration_disabled(p);
}

/* p must stay on its CPU: only until it can leave? */
static __always_inline bool put_off_leave(struct task_struct *p)
{
	struct task_ctx *tctx = p->flags & PF_KTHREAD ? NULL : try_lookup_task(p);

	return tctx && leaves_bound(p, tctx);
}

/* 0, if p's next return to user mode begins its leave. */
static __always_inline int ask_for_leave(struct task_struct *p, struct task_ctx *tctx)
{
	struct return_work *work, none = {};
	u64 thread = (u64)p;

	work = bpf_map_lookup_elem(&return_works, &thread);
	if (!work) {
		tctx->has_work = true;
		bpf_map_update_elem(&return_works, &thread, &none, BPF_NOEXIST);
		work = bpf_map_lookup_elem(&return_works, &thread);
	}
	return work ? at_return_to_user(p, &work->work, &return_works, leave) : -12; /* ENOMEM */
}

/* Have p parked as soon as it may be. */
static __always_inline void ask_to_leave(struct task_struct *p, struct task_ctx *tctx, u32 cpu)
{
	tctx->leaving = ASKED_TO_LEAVE;
	/* No memory for it in here, or the one before is not over: later, then. */
	if (!has_task_work || ask_for_leave(p, tctx))
		end_grant_in(cpu, p->pid, DEBT_SLICE_NS);
}

#endif
