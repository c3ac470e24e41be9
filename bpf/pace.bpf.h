/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CPU limits (cpu.max), as pace: a thread of a limited cgroup runs on grants of
 * tokens (bucket.bpf.h), and waits at its cgroup's gate for the next one.
 *
 *   wakeup ──► a grant, or on debt ──► as any other thread ──► running
 *                                                               │ grant ends
 *   gate's queue ◄── enqueue ◄── preempted ◄─── to user mode ◄────┘
 *        └─ timer of the gate: tokens came, or somebody left ──► its tier's queue
 *
 * A thread is parked only on its way back to user mode: it holds no lock of the
 * kernel there. Until it gets there it runs on debt, which is paid before the
 * next grant. Threads without a limit above them pay for one comparison.
 */
#ifndef TEMPER_PACE_BPF_H
#define TEMPER_PACE_BPF_H

/*
 * The kernel's watchdog ejects a scheduler that keeps a thread waiting for 10 s,
 * which the smallest limits would: one CPU in a thousand for a hundred threads.
 * Who waited that long passes without tokens, for a moment, on debt.
 */
#define PARK_BOUND_NS (4ULL * 1000 * 1000 * 1000)
#define PARK_BOUND_GRANT_NS (50ULL * 1000)

static __always_inline u64 force_grant(struct gate_chain *chain)
{
	int i;

	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		struct gate *g = lookup_gate(chain->slots[i]);

		if (!g)
			break;
		force_from(g, PARK_BOUND_GRANT_NS);
	}
	return PARK_BOUND_GRANT_NS;
}

/* A grant that will not be used: somebody who waits may pass with it. */
static __always_inline void give_back_and_open(u32 slot, u64 ns, u64 now)
{
	struct gate *g = lookup_gate(slot);

	give_back(slot, ns, true);
	if (g && g->waiting)
		open_gate_at(slot, now, now);
}

/*
 * A grant for a thread that has none; false: it has none still. The gate's timer and the
 * kernel, which takes a thread out of a queue when its affinity changes, may both ask for the
 * same one: who comes second gives back what it got.
 */
static __always_inline bool grant_to(struct task_ctx *tctx, u64 ns, u64 now)
{
	int i;

	if (!ns)
		return false;
	if (!__sync_val_compare_and_swap(&tctx->granted, 0, ns))
		return true;
	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		if (!tctx->gates.slots[i])
			break;
		give_back_and_open(tctx->gates.slots[i], ns, now);
	}
	return true;
}

/*
 * A thread begins to run. Who slept and kept its grant goes on with it, unless
 * that took too long at one of its gates.
 */
static __always_inline void begin_at_gates(struct task_ctx *tctx, u64 now)
{
	u64 kept = tctx->keeps ? tctx->granted : 0;
	struct refusal no;
	u32 lost = 0;
	int i;

	/* Once, as it ends once: the timer that renews a grant and who changes p may meet. */
	if (__sync_lock_test_and_set(&tctx->paced, 1))
		return;
	tctx->grant_began = now;
	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		u32 slot = tctx->gates.slots[i];

		if (!slot)
			break;
		lost |= (u32)begin_at_gate(slot, now, kept, tctx->kept_epochs[i]) << i;
	}
	tctx->keeps = false;
	if (!kept || !lost)
		return;
	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		u32 slot = tctx->gates.slots[i];

		if (slot && !(lost & (1U << i)))
			give_back_and_open(slot, kept, now);
	}
	tctx->granted = take_grant(&tctx->gates, now, &no);
}

/* A thread that sleeps will not need what it kept. */
static __always_inline void drop_kept(struct task_ctx *tctx, u64 now)
{
	u32 i;

	tctx->keeps = false;
	for_each_num(i, 0, TEMPER_GATE_DEPTH) {
		struct gate *g = lookup_gate(tctx->gates.slots[i]);

		if (!g)
			break;
		if (resume_at_gate(g, tctx->granted, tctx->kept_epochs[i]))
			give_back_and_open(tctx->gates.slots[i], tctx->granted, now);
	}
	tctx->granted = 0;
}

/*
 * What a thread used of its grant, or on debt, is settled at every limit above
 * it. Once: the timer of its CPU and whoever changes it from afar may meet.
 */
static __always_inline void end_at_gates(struct task_ctx *tctx, u64 used, u64 keep, u64 now)
{
	struct stay stay = {
		.began = tctx->grant_began,
		.used = used,
		.granted = tctx->granted,
		.keep = keep,
	};
	int i;

	if (!__sync_lock_test_and_set(&tctx->paced, 0))
		return;

	tctx->granted = keep;
	tctx->keeps = keep;
	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		u32 slot = tctx->gates.slots[i];
		u64 opens_at;

		if (!slot)
			break;
		opens_at = end_at_gate(slot, &stay, now, &tctx->kept_epochs[i]);
		if (opens_at)
			open_gate_at(slot, opens_at, now);
	}
}

/* p, below a limit, begins to run, or goes on after a change. */
static __always_inline void pace_running(struct task_struct *p, struct task_ctx *tctx, u32 cpu)
{
	u64 now;

	if (tctx->leaving >= LEAVING) {
		if (is_bound_by_kernel(p))
			tctx->leaving = LEAVING_BOUND;
		else if (tctx->leaving == LEAVING_BOUND)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	now = pace_now();
	/* In bypass, as for a suspend, the kernel runs whoever waits, and does not say so. */
	if (tctx->parked)
		count_waited(take_out(tctx, now), now);
	if (tctx->paced)
		return;
	tctx->settled = 0;
	begin_at_gates(tctx, now);
	if (tctx->granted)
		end_grant_in(cpu, p->pid, tctx->granted);
	else if (!tctx->leaving)
		ask_to_leave(p, tctx, cpu);
}

/* What a thread that falls asleep keeps of its grant. */
static __always_inline u64 keep_of(const struct task_struct *p, const struct task_ctx *tctx,
				   s64 left)
{
	int i;

	if (p->flags & PF_EXITING)
		return 0;
	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		struct gate *g = lookup_gate(tctx->gates.slots[i]);
		s64 room;

		if (!g)
			break;
		room = keep_room(g);
		if (room < left)
			left = room;
	}
	return left < KEEP_LEAST_NS ? 0 : left;
}

/*
 * Grants that are renewed are paid by the clock, and what interrupts and the hypervisor took
 * of that is nobody's use: so much of what the thread uses next is paid for.
 */
static __always_inline u64 paid_before(struct task_ctx *tctx, u64 used)
{
	u64 paid = tctx->overpaid < used ? tctx->overpaid : used;

	tctx->overpaid -= paid;
	return paid;
}

/*
 * p, below a limit, leaves its CPU. Neither runnable nor asleep it is only
 * changed, by being bound to it or unbound, and comes back at once.
 */
static __always_inline void pace_stopping(const struct task_struct *p, struct task_ctx *tctx,
					  u64 used, bool runnable)
{
	s64 unsettled = (s64)used - tctx->settled, left;

	if (runnable ? leaves_bound(p, tctx) : !p->__state) {
		tctx->settled = -unsettled;
		return;
	}
	if (unsettled < 0) {
		tctx->overpaid -= unsettled;
		if (tctx->overpaid > GRAIN_NS)
			tctx->overpaid = GRAIN_NS;
		unsettled = 0;
	}
	unsettled -= paid_before(tctx, unsettled);
	left = (s64)tctx->granted - unsettled;
	end_at_gates(tctx, unsettled, runnable ? 0 : keep_of(p, tctx, left), pace_now());
}

/* The slot of the first gate above a thread at which others wait; 0: none. */
static __always_inline u32 waiting_slot(const struct gate_chain *chain)
{
	int i;

	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		struct gate *g = lookup_gate(chain->slots[i]);

		if (!g)
			break;
		if (g->waiting)
			return chain->slots[i];
	}
	return 0;
}

/*
 * The grant in use on this CPU is over: another one, without leaving the CPU, if
 * nobody waits at a gate and no limit came. Else p goes on, on debt, until it can
 * be parked; on its way its limits are looked up anew.
 */
static __always_inline bool pace_renew(struct task_struct *p, struct task_ctx *tctx, u32 cpu,
				       u64 now)
{
	u64 used = now - tctx->grant_began;
	struct refusal no;

	/* What it runs from here on is settled when it leaves. */
	if (tctx->limits_seq != *(volatile u64 *)&limits_seq || waiting_slot(&tctx->gates))
		return false;
	tctx->settled += used; /* first: who changes p meanwhile settles the rest */
	end_at_gates(tctx, used - paid_before(tctx, used), 0, now);
	tctx->leaving = NOT_LEAVING;
	tctx->granted = take_grant(&tctx->gates, now, &no);
	begin_at_gates(tctx, now);
	if (!tctx->granted)
		return false;
	end_grant_in(cpu, p->pid, tctx->granted);
	return true;
}

static int grant_ended(void *map, u32 *key, struct grant_timer *t)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 now = pace_now();
	struct task_ctx *tctx;
	u32 cpu = *key;

	t->fires_at = 0;
	if (p->pid != t->pid)
		return 0; /* it left the CPU, and settled then */
	tctx = try_lookup_task(p);
	if (!tctx || !tctx->paced)
		return 0;
	if ((s64)(t->ends_at - now) > GRANT_REST_NS) {
		end_grant_in(cpu, t->pid, t->ends_at - now);
		return 0;
	}
	if (!has_task_work && tctx->leaving == ASKED_TO_LEAVE)
		tctx->leaving = LEAVING;
	if (tctx->leaving >= LEAVING)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else if (!pace_renew(p, tctx, cpu, now))
		ask_to_leave(p, tctx, cpu);
	return 0;
}

/*
 * The kernel lets p run on past its slice: its limit came after it began, or
 * the end of its grant got lost.
 */
static __always_inline void pace_keep(struct task_struct *p, struct task_ctx *tctx, u32 cpu)
{
	u64 now = pace_now();

	if (!tctx->paced) {
		tctx->settled = scx_bpf_now() - tctx->started_at;
		begin_at_gates(tctx, now);
		ask_to_leave(p, tctx, cpu);
	} else if (now - tctx->grant_began >= tctx->granted) {
		end_grant_in(cpu, p->pid, 0);
	}
}

/*
 * p asks for a grant. False: it has none, may be parked, and is; else it runs,
 * if need be on debt. The oldest first: who may wait does so behind those who do.
 * parked: it waited so, until the kernel took it out to change it.
 */
static __always_inline bool pace_admit(struct task_struct *p, struct task_ctx *tctx, u64 parked,
				       u64 enq_flags)
{
	/* Who slept did so in the kernel, and may hold locks. */
	bool may_park = (parked || tctx->leaving >= LEAVING) && !(enq_flags & SCX_ENQ_WAKEUP) &&
			!(p->flags & (PF_EXITING | PF_KTHREAD));
	u64 now = pace_now();
	struct refusal no = {};
	u64 since;

	tctx->leaving = NOT_LEAVING;
	/* Kept of limits that may not be its own any more. */
	if (tctx->keeps && tctx->limits_seq != *(volatile u64 *)&limits_seq) {
		drop_kept(tctx, now);
		lookup_task(p);
	}
	/* Kept ones included: when it runs it shows whether it is still there. */
	if (tctx->granted || !tctx->gates.slots[0])
		return true;
	if (may_park)
		no.slot = waiting_slot(&tctx->gates);
	if (!no.slot && (grant_to(tctx, take_grant(&tctx->gates, now, &no), now) || !may_park))
		return true;
	if (!lookup_gate(no.slot))
		return true;
	/* Its age stays, but for the moment that makes the word another one. */
	since = parked ? parked_since(parked) + TEMPER_MAX_GATES : now;
	count_waiting(no.slot, 1, now);
	tctx->parked = parked_word(since, no.slot);
	scx_bpf_dsq_insert_vtime(p, gate_dsq(no.slot), SLICE_NS, since, enq_flags);
	/* Behind others, too: their timer may have let the last of them through by now. */
	open_gate_at(no.slot, no.retry_at ?: now + GRAIN_NS, now);
	return false;
}

/*
 * p waits no longer as it did, but at another gate or, slot 0, at none. False: the kernel took
 * it out meanwhile. verifier: apart, because 6.18 cannot follow a word back to an exchange.
 */
__noinline int leave_gate(struct task_struct *p __arg_trusted, u64 parked, u32 slot, u64 now)
{
	struct task_ctx *tctx = try_lookup_task(p);
	u64 word = slot ? parked_word(parked_since(parked), slot) : 0;

	if (!tctx)
		return 0;
	count_waiting(slot, 1, now);
	if (__sync_val_compare_and_swap(&tctx->parked, parked, word) != parked) {
		count_waiting(slot, -1, now);
		return 0;
	}
	count_waiting(parked_slot(parked), -1, now);
	if (!slot)
		count_waited(parked, now);
	return 1;
}

/* Let p, first at its gate, into its tier, unless the kernel takes it out at this moment. */
static __always_inline void let_through(struct bpf_iter_scx_dsq *it, struct task_struct *p,
					struct task_ctx *tctx, u64 parked, u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p);
	u32 tier;

	if (!leave_gate(p, parked, 0, now))
		return;
	/* While it waited a plan may have come: its group counts by another clock then. */
	lookup_task(p);
	tier = tctx->tier;
	find_company(tctx, tier, cpu);
	scx_bpf_dsq_move_set_vtime(it, charge_slice(tctx, true));
	want_cpus(p, tier);
	/* Before the move: a CPU may run it at once, and running counts it out. */
	count_queued(tctx, tier, scx_bpf_now());
	if (!scx_bpf_dsq_move_vtime(it, p, tier_dsq(tier, cpu_llc(cpu)), 0))
		return;
	count_insertion(tier);
	call_cpu(p);
}

/* Another limit above p is the tighter one now: it waits there, where its age puts it. */
static __always_inline void wait_elsewhere(struct bpf_iter_scx_dsq *it, struct task_struct *p,
					   u64 parked, u32 slot, u64 now)
{
	if (!lookup_gate(slot) || !leave_gate(p, parked, slot, now))
		return;
	scx_bpf_dsq_move_set_vtime(it, parked_since(parked));
	scx_bpf_dsq_move_vtime(it, p, gate_dsq(slot), 0);
	/* Who is first there, and when its time is over, that gate knows. */
	open_gate_at(slot, now, now);
}

/* A pass lets through no more than that many. */
#define GATE_MAX_PASSES 64

/*
 * Whoever may pass a gate does. Returns when to look again; 0: when a thread
 * leaves or comes.
 */
__noinline u64 open_gate(u32 slot, u64 now)
{
	struct bpf_iter_scx_dsq it;
	u64 again = 0;
	int i;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, gate_dsq(slot), 0);
	for_each_num(i, 0, GATE_MAX_PASSES) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);
		struct refusal no = { .retry_at = now };
		struct task_ctx *tctx;
		u64 parked, ns;

		if (!p) {
			again = 0;
			break;
		}
		again = now;
		tctx = try_lookup_task(p);
		parked = tctx ? *(volatile u64 *)&tctx->parked : 0;
		if (!tctx || parked_slot(parked) != slot)
			continue; /* the kernel takes it out, or it leaves for another gate, now */
		/* With a grant, of a pass before this one, it was put back meanwhile. */
		ns = *(volatile u64 *)&tctx->granted;
		if (ns) {
			let_through(&it, p, tctx, parked, now);
			continue;
		}
		if (elapsed(parked_since(parked), now) >= (s64)PARK_BOUND_NS)
			ns = force_grant(&tctx->gates);
		else
			ns = take_grant(&tctx->gates, now, &no);
		if (grant_to(tctx, ns, now)) {
			let_through(&it, p, tctx, parked, now);
			continue;
		}
		if (no.slot != slot) {
			wait_elsewhere(&it, p, parked, no.slot, now);
			continue;
		}
		again = parked_since(parked) + PARK_BOUND_NS;
		if ((s64)(no.retry_at - again) < 0)
			again = no.retry_at;
		break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return again;
}

/* Who waits is counted in before it is inserted, a moment later: a look may miss it. */
#define NOT_SEEN_NS (100ULL * 1000)

static __always_inline bool some_not_seen(struct gate *g, u32 slot, u64 at)
{
	s32 waiting = *(volatile u32 *)&g->waiting;

	return waiting && (!at || waiting > scx_bpf_dsq_nr_queued(gate_dsq(slot)));
}

static int gate_opens(void *map, u32 *key, struct gate *g)
{
	u64 now = pace_now(), soon = now + NOT_SEEN_NS, at = 0;

	/* First: who then finds no timer started asks for another look. */
	__sync_lock_test_and_set(&g->look, LOOKING);
	/* Of this, with the look that follows, and of who waits and looks here, one sees the other. */
	__sync_lock_test_and_set(&g->opens_at, 0);
	if (*(volatile u32 *)&g->waiting)
		at = open_gate(*key, now);
	if (some_not_seen(g, *key, at) && (!at || (s64)(at - soon) > 0))
		at = soon;
	if (at)
		start_gate_timer(*key, at, now);
	/* Started before it is said that the look is over: who comes then sees that it is. */
	if (__sync_val_compare_and_swap(&g->look, LOOKING, LOOK_OVER) == LOOK_AGAIN) {
		start_gate_timer(*key, now, now);
		__sync_lock_test_and_set(&g->look, LOOK_OVER);
	}
	return 0;
}

/* Of a thread that exits, or leaves for another class, nothing stays. */
static __always_inline void forget_thread(struct task_struct *p, struct task_ctx *tctx)
{
	u64 now = pace_now(), thread = (u64)p;
	u64 granted;
	int i;

	count_waited(take_out(tctx, now), now);
	if (tctx->has_work)
		bpf_map_delete_elem(&return_works, &thread);
	tctx->leaving = NOT_LEAVING;
	if (!tctx->gates.slots[0])
		return;
	/* Taken off its CPU for a change of class, it has not settled (pace_stopping). */
	end_at_gates(tctx, tctx->settled < 0 ? -tctx->settled : 0, 0, now);
	if (tctx->keeps)
		drop_kept(tctx, now);
	granted = tctx->granted;
	if (!granted)
		return;
	/* It had a grant and waited for a CPU. */
	tctx->granted = 0;
	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		if (!tctx->gates.slots[i])
			break;
		give_back_and_open(tctx->gates.slots[i], granted, now);
	}
}

static __always_inline void init_pace(void)
{
	u32 cpu;

	for_each_num(cpu, 0, TEMPER_MAX_CPUS) {
		struct grant_timer *t = bpf_map_lookup_elem(&grant_timers, &cpu);

		if (cpu >= nr_cpus || !t)
			break;
		bpf_timer_init(&t->timer, &grant_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&t->timer, grant_ended);
	}
}

#endif
