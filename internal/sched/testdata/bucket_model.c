// SPDX-License-Identifier: Apache-2.0
/*
 * A model of the pacer around its arithmetic: threads that compute and sleep, a
 * limit that changes, clocks that differ, grants that are overrun. Usage:
 *
 *   bucket_model SEED EVENTS
 *
 * It ends with a line of what was seen, or with the first broken promise.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t s64;
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#include "bucket.bpf.h"

#define MAX_THREADS 64
#define OVERRUN_NS 60000 /* how far a thread runs beyond a grant here, at most */
#define SKEW_NS 500 /* how far two CPUs' clocks differ */

enum state { SLEEPS, WAITS, RUNS };

struct thread {
	enum state state;
	u64 until; /* asleep until, or its grant's end with the overrun */
	u64 granted, began; /* of the grant in use */
	u64 waits_since, rank; /* rank: order of arrival in the queue */
	s64 wants; /* CPU time until it sleeps */
	u64 ahead; /* threads before it when it began to wait, those running included */
};

static u64 rng;

static u64 draw(u64 below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % below;
}

static struct thread threads[MAX_THREADS];
static int nr_threads;
static struct limit limit;
static struct bucket bucket;
static u64 now, arrivals, admitted, granted_sum, began_sum;
/* What the threads used, and what the limit allowed, both as totals. */
static double used, allowed;
static u64 allowed_at;

static void fail(const char *what)
{
	printf("BROKEN at %llu ns: %s; quota %llu period %llu burst %llu threads %d level %lld\n",
	       (unsigned long long)now, what, (unsigned long long)limit.quota_us,
	       (unsigned long long)limit.period_us, (unsigned long long)limit.burst_us, nr_threads,
	       (long long)bucket.level);
	exit(1);
}

/* The clock of whichever CPU runs this. */
static u64 clock_of_cpu(void)
{
	return now + draw(2 * SKEW_NS + 1) - SKEW_NS;
}

static void allow(void)
{
	allowed += (double)(now - allowed_at) * limit.quota_us / limit.period_us;
	allowed_at = now;
}

/* With what the running threads used of their grants so far. */
static double used_now(void)
{
	double sum = used;

	for (int i = 0; i < nr_threads; i++)
		if (threads[i].state == RUNS)
			sum += now - threads[i].began;
	return sum;
}

/* What is left of the grants in use, as a gate knows it: by sums, not by thread. */
static s64 unused_at(u64 when)
{
	return (s64)granted_sum - (s64)(admitted * when - began_sum);
}

/* Somebody has waited since then. */
static bool waited_since(u64 when)
{
	for (int i = 0; i < nr_threads; i++)
		if (threads[i].state == WAITS && threads[i].waits_since < when)
			return true;
	return false;
}

/*
 * A grant from before the limit changed may be longer than any of this one: what
 * comes beside it has no room, and may not do for another grant.
 */
static bool oversized(void)
{
	for (int i = 0; i < nr_threads; i++)
		if (threads[i].state == RUNS && threads[i].granted > grant_most(&limit))
			return true;
	return false;
}

static void fill(void)
{
	u64 when = clock_of_cpu(), before = bucket.filled_at;
	s64 level = bucket.level, passed = when - before;
	double came = (double)passed * limit.quota_us, lost;

	bucket_fill(&bucket, &limit, unused_at(when), when);
	lost = (came - (double)(bucket.level - level)) / limit.quota_us;
	if (passed > 0 && waited_since(before) && lost > 8 * SKEW_NS && !oversized())
		fail("tokens were lost while a thread waited");
}

static double cap_ns(void)
{
	return (double)bucket_cap(&limit) / limit.period_us;
}

/*
 * The bound, over every span that ends now: the least of used - allowed so far
 * is kept, since that is where the worst span begins.
 */
static double lowest;
/* How many may overrun since then: a lower limit finds more of them running. */
static u64 overrunners;
/* Grants in use when the limit changed stay: they may be more than the new one holds. */
static double carried;

static void check_use(void)
{
	double ahead, most;

	allow();
	ahead = used_now() - allowed;
	most = (carried > cap_ns() ? carried : cap_ns()) + (double)overrunners * 2 * OVERRUN_NS +
	       2 * SKEW_NS * (1 + (double)limit.quota_us / limit.period_us);
	if (ahead < lowest)
		lowest = ahead;
	if (ahead - lowest > most + 1)
		fail("more was used than the limit allows");
}

static void draw_limit(void)
{
	static const u64 periods[] = { 1000, 5000, 10000, 100000, 250000, 1000000 };

	limit.period_us = periods[draw(6)];
	limit.quota_us = 1000 + draw(16 * limit.period_us);
	if (draw(4) == 0)
		limit.quota_us = 1000;
	limit.burst_us = draw(3) ? 0 : draw(limit.quota_us + 1);
}

/* So many may have a grant at once. */
static u64 at_once(void)
{
	return limit.burst_us ? MAX_THREADS : admitted_most(&limit) + 1;
}

static void change_limit(void)
{
	struct limit old = limit;

	check_use();
	draw_limit();
	bucket_change(&bucket, &old, &limit, unused_at(now), now);
	/* Spans across the change have two limits: begin anew. */
	lowest = used_now() - allowed;
	carried = unused_at(now);
	overrunners = at_once() > admitted ? at_once() : admitted;
	for (int i = 0; i < nr_threads; i++)
		if (threads[i].state == WAITS)
			threads[i].waits_since = now, threads[i].ahead = nr_threads;
}

static void run(struct thread *t, u64 grant)
{
	s64 runs = t->wants < (s64)grant ? t->wants : (s64)grant;

	bucket_take(&bucket, &limit, grant);
	admitted++;
	granted_sum += grant;
	began_sum += now;
	t->state = RUNS;
	t->granted = grant;
	t->began = now;
	/* Who has more to do overruns: it was in the kernel when its grant ended. */
	t->until = now + runs + (t->wants > (s64)grant ? draw(OVERRUN_NS + 1) : 0);
}

/* The oldest that waits. */
static struct thread *first_waiting(void)
{
	struct thread *first = NULL;

	for (int i = 0; i < nr_threads; i++)
		if (threads[i].state == WAITS && (!first || threads[i].rank < first->rank))
			first = &threads[i];
	return first;
}

static void check_wait(const struct thread *t)
{
	/* Everybody before it had a grain and overran, and the tokens for its own had to come. */
	double work = (t->ahead + 1 + at_once()) * (double)(GRAIN_NS + OVERRUN_NS) +
		      grant_least(&limit) + 4 * SKEW_NS;

	if ((double)(now - t->waits_since) >
	    work * limit.period_us / limit.quota_us + 4 * SKEW_NS + 1)
		fail("a thread waited longer than those before it explain");
}

/* Admit who may be. Returns when to look again, 0: when somebody stops. */
static u64 admit(void)
{
	struct thread *t;

	while ((t = first_waiting())) {
		u64 grant;

		fill();
		if (!may_admit(&bucket, &limit, admitted, unused_at(now)))
			return 0;
		grant = grant_of(&bucket, &limit);
		if (!grant) {
			u64 at = bucket_ready_at(&bucket, &limit, grant_least(&limit));

			if (at <= now) /* by another CPU's clock it is there already */
				at = now + 1;
			return at;
		}
		check_wait(t);
		run(t, grant);
	}
	return 0;
}

static void queue(struct thread *t)
{
	t->state = WAITS;
	t->waits_since = now;
	t->rank = arrivals++;
	t->ahead = 0;
	for (int i = 0; i < nr_threads; i++)
		t->ahead += &threads[i] != t && threads[i].state != SLEEPS;
}

/* Something happened to t. */
static void step(struct thread *t)
{
	if (t->state == RUNS) {
		u64 ran = now - t->began;

		fill();
		bucket_return(&bucket, &limit, (s64)t->granted - (s64)ran);
		admitted--;
		granted_sum -= t->granted;
		began_sum -= t->began;
		used += ran;
		t->wants -= ran;
		t->state = WAITS;
		check_use();
		if (t->wants > 0) {
			queue(t);
			return;
		}
		t->state = SLEEPS;
		t->until = now + draw(draw(2) ? 100000 : 20000000);
		return;
	}
	t->wants = 1 + draw(draw(3) ? 300000 : 30000000);
	queue(t);
}

static void begin(void)
{
	memset(threads, 0, sizeof(threads));
	nr_threads = 1 + draw(MAX_THREADS);
	draw_limit();
	admitted = granted_sum = began_sum = 0;
	used = allowed = lowest = 0;
	allowed_at = now;
	overrunners = at_once();
	carried = 0;
	bucket.level = bucket_cap(&limit);
	bucket.filled_at = now;
	for (int i = 0; i < nr_threads; i++)
		threads[i].until = now + draw(1000000);
}

int main(int argc, char **argv)
{
	u64 events, n, looks = 0, changes = 0, episodes = 0;
	double most = 0;

	if (argc != 3)
		return 2;
	rng = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15ULL | 1;
	events = strtoull(argv[2], NULL, 10);
	now = 1000000000ULL;
	for (n = 0; n < events; n++) {
		struct thread *next = NULL;
		u64 at = 0, look;

		if (n % 20000 == 0) {
			begin();
			episodes++;
		}
		if (draw(5000) == 0) {
			change_limit();
			changes++;
		}
		look = admit();
		for (int i = 0; i < nr_threads; i++)
			if (threads[i].state != WAITS && (!next || threads[i].until < at))
				next = &threads[i], at = next->until;
		if (look && (!next || look < at)) {
			now = look > now ? look : now;
			check_use();
			looks++;
			continue;
		}
		if (!next)
			fail("everybody waits, and nobody will look");
		now = at > now ? at : now;
		check_use();
		step(next);
		if (used > most)
			most = used;
	}
	printf("%llu events, %llu limits, %llu changes of one, %llu looks by the timer, at most %.1f s of CPU time in one\n",
	       (unsigned long long)events, (unsigned long long)episodes,
	       (unsigned long long)changes, (unsigned long long)looks, most / 1e9);
	return 0;
}
