// SPDX-License-Identifier: Apache-2.0
/*
 * Cases for the pacer that pace_model.c does not draw. It ends with a line for
 * each, and fails with the first promise that one of them breaks.
 */
/* Not all of the promises are asked here. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "pace_promises.h"

static struct thread *const only = &threads[0];

/* One CPU, one pod with a limit, and one thread of it, asleep. */
static u32 begin_case(u64 quota_us, u64 period_us)
{
	memset(cpus, 0, sizeof(cpus));
	memset(timer_store, 0, sizeof(timer_store));
	memset(only, 0, sizeof(*only));
	nr_cpus = nr_threads = 1;
	has_task_work = true;
	only->task = (struct task_struct){
		.pid = 1, .nr_cpus_allowed = MAX_CPUS, .cgroups = &css_sets[0], .__state = 1
	};
	only->task.cpus_ptr = &only->task.cpus_mask;
	only->ctx.tier = TEMPER_STANDARD;
	set_limit(&groups[0], 1, period_us, quota_us, 0);
	return groups[0].gate;
}

static void end_case(void)
{
	forget_thread(&only->task, &only->ctx);
	drop_limit(&groups[0]);
	nr_ready = nr_threads = 0;
}

/* The next that happens to a thread that computes without end. */
static void go_on(u32 slot)
{
	u64 *const timers[] = { &timer_store[0].timer.at, &gate_store[slot].timer.at };
	u64 at = cpus[0].runs ? cpus[0].slice_ends : ~0ULL;
	bool works = only->place == ON_CPU && (only->asked || only->works);
	u64 *next = NULL;
	u32 key = slot;

	obey_kicks();
	dispatch();
	obey_kicks();
	for (int i = 0; i < 2; i++)
		if (*timers[i] && *timers[i] < at)
			at = *(next = timers[i]);
	if (works && now + only->stay < at) {
		pass_time(now + only->stay);
		return_to_user(only);
		return;
	}
	pass_time(at > now ? at : now);
	if (!next) {
		end_slice(0);
		return;
	}
	*next = 0;
	if (next == timers[0])
		grant_ended(NULL, &(u32){ 0 }, &timer_store[0]);
	else
		gate_opens(NULL, &key, &gate_store[slot]);
	after(only);
}

/* What a hypervisor or interrupts take is charged to no thread, so to no limit either. */
static void time_stolen(void)
{
	u32 slot = begin_case(50000, 100000);
	u64 began = now, ran;
	double share;

	stolen = 5;
	wake(only);
	while (now - began < 5ULL * 1000 * 1000 * 1000)
		go_on(slot);
	stolen = 0;
	ran = only->task.se.sum_exec_runtime;
	share = ran / (.5 * (now - began));
	printf("5 %% of the time stolen: %.4f of the limit used\n", share);
	if (share < .99 || share > 1.06) /* the first period's tokens are there at once */
		fail("its limit is not what it gets where time is stolen", slot);
	end_case();
}

/* A thread of the kernel's never waits. Its debt grows, and is never taken for tokens. */
static void endless_debt(void)
{
	struct bucket b = {};
	const struct limit l = { .quota_us = 1000, .period_us = 1000000 };

	for (int hour = 0; hour < 24; hour++) {
		for (int second = 0; second < 3600; second++)
			bucket_return(&b, &l, -1000LL * 1000 * 1000);
		if (bucket_tokens(&b, &l) || b.level > 0)
			fail("an endless debt became tokens", 0);
		bucket_fill(&b, &l, 0, b.filled_at + 1);
	}
	printf("a day on debt: no tokens\n");
}

/* In bypass the kernel takes who waits out of its queue and runs it, and enqueue is not asked. */
static void suspended(void)
{
	u32 slot = begin_case(1000, 100000);

	wake(only);
	for (int i = 0; i < 100000 && only->place != PARKED; i++)
		go_on(slot);
	if (only->place != PARKED)
		fail("nobody was parked", slot);
	remove_from(parked[slot], &nr_parked[slot], only);
	start(only, 0);
	if (gate_store[slot].waiting || only->ctx.parked)
		fail("a thread runs, and is counted as waiting", slot);
	fall_asleep(only, 1);
	printf("a suspend: nobody is left waiting\n");
	end_case();
}

int main(void)
{
	rng = 1;
	now = 1000000000ULL;
	cgroups[0].level = 1;
	css_sets[0].dfl_cgrp = &cgroups[0];
	init_gates();
	time_stolen();
	endless_debt();
	suspended();
	return 0;
}
