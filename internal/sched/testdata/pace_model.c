// SPDX-License-Identifier: Apache-2.0
/*
 * A model of a limited pod: the pacer itself (bpf/pace.bpf.h and what it is made
 * of) on a machine of the model's own. Threads compute and sleep, stay in the
 * kernel beyond their grants, wait for CPUs and exit; limits come, change and
 * go. Usage:
 *
 *   pace_model SEED EVENTS
 *
 * It ends with a line of what was seen, or with the first broken promise.
 */
#include "pace_promises.h"

#define EPISODE 10000

static u64 changes;

static struct limit some_limit(void)
{
	static const u64 periods[] = { 1000, 5000, 10000, 100000, 250000, 1000000 };
	struct limit l = { .period_us = periods[draw(6)] };

	l.quota_us = 1000 + draw((draw(2) ? 16 : 2) * l.period_us);
	if (draw(8) == 0)
		l.quota_us = 1000;
	l.burst_us = draw(3) ? 0 : draw(l.quota_us + 1);
	return l;
}

static double unused_of(u32 slot)
{
	double sum = 0;

	for (int i = 0; i < nr_threads; i++) {
		const struct thread *t = &threads[i];

		if (index_in(&t->ctx.gates, slot) < 0)
			continue;
		if (t->seen.on)
			sum += (double)t->seen.granted - (now - t->seen.began);
		else if (holds(t, slot))
			sum += t->ctx.granted;
	}
	return sum;
}

static void change_limit(int group)
{
	struct limit to = some_limit(), from = {};
	u32 slot = groups[group].gate;

	here = draw(nr_cpus);
	if (slot)
		from = gate_store[slot].limit;
	if (draw(4) == 0)
		to.quota_us = NO_QUOTA;
	looks = 0; /* the first one here is no other's next */
	set_limit(&groups[group], 1 + group, to.period_us, to.quota_us, to.burst_us);
	if (!slot && groups[group].gate)
		books[groups[group].gate].used = 0;
	slot = groups[group].gate;
	if (slot)
		note_change(slot, &from, unused_of(slot));
	changes++;
}

/* CPU time until it sleeps. */
static void draw_wants(struct thread *t)
{
	t->wants = 1 + draw(t->talks || draw(4) == 0 ? 60000 : 30000000);
}

static u64 some_sleep(const struct thread *t)
{
	if (t->talks && draw(16))
		return 1 + draw(KEEP_NS + KEEP_NS / 4);
	return 1 + draw(draw(2) ? 100000 : 20000000);
}

/* It stays in the kernel for that long. */
static void draw_stay(struct thread *t)
{
	if (!t->stay && draw(2))
		t->stay = draw(draw(1000) ? IN_KERNEL_NS : IN_KERNEL_MOST_NS);
}

/* A new thread, which is asleep. */
static void new_thread(struct thread *t, u64 within)
{
	int pid = t->task.pid, group = draw(NR_GROUPS);

	memset(t, 0, sizeof(*t));
	t->task = (struct task_struct){ .pid = pid + MAX_THREADS,
					.nr_cpus_allowed = MAX_CPUS,
					.cgroups = &css_sets[group],
					.__state = 1 };
	t->task.cpus_ptr = &t->task.cpus_mask;
	t->ctx.tier = TEMPER_STANDARD;
	t->place = SLEEPS;
	t->wakes_at = now + draw(within);
	t->talks = draw(2);
}

/* It exits, or leaves for another class. */
static void end_thread(struct thread *t)
{
	here = draw(nr_cpus);
	if (t->place == ON_CPU)
		fall_asleep(t, 0);
	else if (t->place == READY)
		remove_from(ready, &nr_ready, t);
	else if (t->place == PARKED)
		remove_from(parked[parked_slot(t->ctx.parked)],
			    &nr_parked[parked_slot(t->ctx.parked)], t);
	forget_thread(&t->task, &t->ctx);
	after(t);
	new_thread(t, 20000000);
}

/* The kernel takes one that waits out of its queue and enqueues it anew. */
static void requeue(u32 slot)
{
	struct thread *t;
	u64 since;

	if (!nr_parked[slot])
		return;
	t = parked[slot][draw(nr_parked[slot])];
	since = t->parked_at;
	remove_from(parked[slot], &nr_parked[slot], t);
	here = draw(nr_cpus);
	enqueue(t, 0);
	if (t->place == PARKED)
		t->parked_at = since + TEMPER_MAX_GATES; /* waits on from there, all but */
	else if (!t->ctx.granted && limited(slot))
		fail("a thread that waited runs on debt, for being changed", slot);
}

static void disturb(void)
{
	u32 cpu = draw(nr_cpus);
	struct thread *t = &threads[draw(nr_threads)];

	switch (draw(8)) {
	case 0:
		requeue(1 + draw(NR_SLOTS - 1));
		break;
	case 1:
		if (!t->works && draw(4) == 0)
			end_thread(t);
		break;
	case 2:
		if (draw(4) == 0)
			change_limit(draw(NR_GROUPS));
		break;
	case 3:
	case 4:
		cpus[cpu].taken_until = now + draw(draw(4) ? 50000 : 5000000);
		preempt(cpu);
		if (cpus[cpu].runs)
			cpus[cpu].taken_until = 0; /* bound to it */
		break;
	default:
		preempt(cpu);
	}
}

static void begin_episode(void)
{
	static const u32 machines[] = { 1, 4, 16, 16 };
	u64 within = 1 + draw(10000000);

	nr_cpus = machines[draw(4)];
	has_task_work = draw(4);
	for (u32 cpu = 0; cpu < MAX_CPUS; cpu++)
		cpus[cpu] = (struct cpu){ .skew = (s64)draw(2 * SKEW_NS + 1) - SKEW_NS };
	for (int i = 0; i < NR_GROUPS; i++)
		if (i == 0 || draw(2))
			change_limit(i);
	nr_threads = 1 + draw(draw(2) ? MAX_THREADS : 4);
	for (int i = 0; i < nr_threads; i++)
		new_thread(&threads[i], within);
}

/* All threads exit, and their cgroups are removed. */
static void end_episode(void)
{
	here = 0;
	for (int i = 0; i < nr_threads; i++) {
		threads[i].task.migration_disabled = 0;
		end_thread(&threads[i]);
	}
	check_sums();
	for (u32 slot = 1; slot < NR_SLOTS; slot++) {
		const struct gate *g = &gate_store[slot];

		if (g->granted || g->began || g->admitted || g->kept || g->kept_ns || g->running ||
		    g->waiting)
			fail("its threads are gone, and its sums are not zero", slot);
	}
	for (int i = 0; i < NR_GROUPS; i++)
		drop_limit(&groups[i]);
	nr_threads = 0;
}

/* What comes next, and when. */
struct event {
	u64 at;
	enum { NOTHING, WAKEUP, SLEEP, RETURN, SLICE, GRANT, GATE, FREE } what;
	u32 which;
};

static void sooner(struct event *e, u64 at, int what, u32 which)
{
	if (e->what == NOTHING || at < e->at)
		*e = (struct event){ .at = at, .what = what, .which = which };
}

static struct event next_event(void)
{
	struct event e = {};

	for (int i = 0; i < nr_threads; i++)
		if (threads[i].place == SLEEPS)
			sooner(&e, threads[i].wakes_at, WAKEUP, i);
	for (u32 slot = 1; slot < NR_SLOTS; slot++)
		if (gate_store[slot].timer.at)
			sooner(&e, gate_store[slot].timer.at, GATE, slot);
	for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
		const struct thread *t = cpus[cpu].runs;

		if (timer_store[cpu].timer.at)
			sooner(&e, timer_store[cpu].timer.at, GRANT, cpu);
		if (!t && cpus[cpu].taken_until > now && nr_ready)
			sooner(&e, cpus[cpu].taken_until, FREE, cpu);
		if (!t)
			continue;
		sooner(&e, cpus[cpu].slice_ends, SLICE, cpu);
		if (t->asked || t->works)
			sooner(&e, now + t->stay, RETURN, cpu);
		if (!t->works)
			sooner(&e, now + t->wants, SLEEP, cpu);
	}
	return e;
}

static void happen(const struct event *e)
{
	u32 which = e->which;

	switch (e->what) {
	case WAKEUP:
		draw_wants(&threads[which]);
		draw_stay(&threads[which]);
		wake(&threads[which]);
		break;
	case SLEEP:
		fall_asleep(cpus[which].runs, some_sleep(cpus[which].runs));
		break;
	case RETURN:
		return_to_user(cpus[which].runs);
		break;
	case SLICE:
		end_slice(which);
		break;
	case GRANT:
		here = which;
		timer_store[which].timer.at = 0;
		if (cpus[which].runs)
			draw_stay(cpus[which].runs);
		grant_ended(NULL, &which, &timer_store[which]);
		if (cpus[which].runs)
			after(cpus[which].runs);
		break;
	case GATE:
		here = draw(nr_cpus);
		gate_store[which].timer.at = 0;
		gate_opens(NULL, &which, &gate_store[which]);
		note_epochs();
		if (gate_store[which].timer.at)
			note_look(which);
		break;
	default:
		break;
	}
}

int main(int argc, char **argv)
{
	u64 events, n, episodes = 0;

	if (argc != 3)
		return 2;
	rng = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15ULL | 1;
	events = strtoull(argv[2], NULL, 10);
	now = 1000000000ULL;
	for (int i = 0; i < NR_GROUPS; i++) {
		/* The first is the pod's, the last in the second. */
		cgroups[i].level = i == 0 ? 1 : i == NR_GROUPS - 1 ? 3 : 2;
		cgroups[i].above = i == 0 ? NULL : &cgroups[i == NR_GROUPS - 1];
		css_sets[i].dfl_cgrp = &cgroups[i];
	}
	init_gates();
	for (n = 0; n < events; n++) {
		struct event e;

		if (n % EPISODE == 0) {
			end_episode();
			begin_episode();
			episodes++;
		}
		if (draw(64) == 0)
			disturb();
		obey_kicks();
		dispatch();
		obey_kicks();
		check_sums();
		e = next_event();
		if (e.what == NOTHING)
			fail("everybody waits, and nobody will look", 0);
		pass_time(e.at > now ? e.at : now);
		check_promises();
		happen(&e);
	}
	printf("%llu events, %llu pods, %llu changes of a limit, %llu threads let through by the bound; "
	       "while threads waited, %.1f %% of the tokens lost for who slept, %.1f %% for who waited for a CPU\n",
	       events, episodes, changes, forced, 100 * lost_kept / came_waiting,
	       100 * (lost_waiting - lost_kept) / came_waiting);
	return 0;
}
