// SPDX-License-Identifier: Apache-2.0
/*
 * What the pacer promises, checked against books of the model's own: by the
 * true time, and by what the threads really ran.
 */
#ifndef PACE_PROMISES_H
#define PACE_PROMISES_H

#include "pace_machine.h"

#define IN_KERNEL_NS 60000 /* how long a thread may stay in the kernel, mostly */
#define IN_KERNEL_MOST_NS (20ULL * 1000 * 1000) /* rarely */

/* A limit's books. In nanoseconds of CPU time, if nothing else is said. */
struct book {
	/*
	 * An ideal bucket: quota / period flow in all the time, up to the cap, and
	 * out what threads run. A use above the bound, in whatever span, is one
	 * that makes it less than empty.
	 */
	double ideal;
	double debt; /* settled, not paid yet */
	u64 used; /* settled */
	u32 kept_epoch;
	double lost; /* since the last one passed, while threads waited and all grants were run on */
	u64 stop_since; /* somebody waits and nobody runs since then */
	double stop_ideal;
	u64 looks, looks_since; /* of the timer, one after the other, that changed nothing */
	u64 limited_at; /* by the limit that it has */
};

static struct book books[NR_SLOTS];
/* For the reader: tokens that came while threads waited, and those of them that were lost. */
static double came_waiting, lost_waiting, lost_kept;
static u64 forced;

static double rate(const struct limit *l)
{
	return (double)l->quota_us / l->period_us;
}

/* As the pacer states them (bucket.bpf.h). */
static double grain_of(const struct limit *l)
{
	double grain = rate(l) * GRAIN_NS;

	return grain > GRANT_MIN_NS ? grain : GRANT_MIN_NS;
}

static double cap_of(const struct limit *l)
{
	double quota = 1000.0 * l->quota_us, grain = grain_of(l);

	return (quota > grain ? quota : grain) + 1000.0 * l->burst_us;
}

static bool limited(u32 slot)
{
	return gate_store[slot].cgroup && gate_store[slot].limit.quota_us;
}

static void fail(const char *what, u32 slot)
{
	const struct gate *g = &gate_store[slot];

	printf("BROKEN at %llu ns, limit %u: %s; quota %llu period %llu burst %llu level %lld ns granted %lld "
	       "admitted %u kept %u running %u waiting %u, ideally %.0f, debt %.0f\n",
	       now, slot, what, g->limit.quota_us, g->limit.period_us, g->limit.burst_us,
	       g->bucket.level / (s64)(g->limit.period_us ?: 1), g->granted, g->admitted, g->kept,
	       g->running, g->waiting, books[slot].ideal, books[slot].debt);
	exit(1);
}

/* What clocks that differ may make of a bucket. */
static double slack_of(u32 slot)
{
	return 4 * SKEW_NS * (rate(&gate_store[slot].limit) + nr_cpus + 1) + 2;
}

/* Its place among the gates of a chain; -1: it is not. */
static int index_in(const struct gate_chain *chain, u32 slot)
{
	for (int i = 0; i < TEMPER_GATE_DEPTH; i++)
		if (chain->slots[i] == slot)
			return i;
	return -1;
}

/* Does it hold a grant of that gate without running on it? */
static bool holds(const struct thread *t, u32 slot)
{
	int i = index_in(&t->ctx.gates, slot);

	if (i < 0 || !t->ctx.granted || t->place == ON_CPU)
		return false;
	return t->ctx.keeps ? t->keeps[i] : true;
}

/* What of the grant in use was overrun so far. */
static double overrun(const struct thread *t)
{
	double ran = now - t->seen.began;

	return ran > t->seen.granted ? ran - t->seen.granted : 0;
}

/* An operation on t is over: a stay may be, too. */
static void note_stay(struct thread *t)
{
	struct stay_seen *s = &t->seen;

	if (s->on && (!t->ctx.paced || t->ctx.grant_began != s->clock)) {
		for (int i = 0; i < TEMPER_GATE_DEPTH; i++) {
			books[s->gates.slots[i]].used += now - s->began;
			books[s->gates.slots[i]].debt += overrun(t);
			books[s->gates.slots[i]].looks = 0;
		}
		s->on = false;
	}
	if (t->ctx.paced && !s->on) {
		s->on = true;
		s->began = now;
		s->clock = t->ctx.grant_began;
		s->gates = t->ctx.gates;
	}
	s->granted = t->ctx.granted;
	if (s->granted)
		t->strays = 0;
}

/* Kept grants of an epoch that is over are gone. */
static void note_epochs(void)
{
	for (u32 slot = 1; slot < NR_SLOTS; slot++) {
		if (books[slot].kept_epoch == gate_store[slot].kept_epoch)
			continue;
		books[slot].kept_epoch = gate_store[slot].kept_epoch;
		for (int i = 0; i < nr_threads; i++) {
			int at = index_in(&threads[i].ctx.gates, slot);

			if (at >= 0)
				threads[i].keeps[at] = false;
		}
	}
}

static void after(struct thread *t)
{
	bool kept = t->keeps[0] || t->keeps[1] || t->keeps[2] || t->keeps[3];

	note_stay(t);
	note_epochs();
	if (!t->ctx.keeps)
		memset(t->keeps, 0, sizeof(t->keeps));
	else if (!kept && t->task.__state)
		memset(t->keeps, 1, sizeof(t->keeps));
}

static void note_parked(struct thread *t, u32 slot)
{
	if (index_in(&t->ctx.gates, slot) < 0)
		fail("a thread waits at a limit that is none of its own", slot);
	t->here_at = now;
	t->strays = 0;
	books[slot].looks = 0;
}

/* The timer had somebody look, and nobody passed. */
static void note_look(u32 slot)
{
	struct book *b = &books[slot];

	if (!b->looks++)
		b->looks_since = now;
	if (b->looks > 16 && now - b->looks_since < GRANT_MIN_NS)
		fail("its timer fires again and again for nothing", slot);
}

/* It passes the gate. */
static void note_through(struct thread *t, u32 slot)
{
	for (int i = 0; i < nr_parked[slot]; i++)
		if (parked[slot][i]->parked_at + 2 * SKEW_NS + 2 * TEMPER_MAX_GATES < t->parked_at)
			fail("a thread passed one that waits for longer", slot);
	books[slot].looks = 0;
	books[slot].lost = 0;
	if (t->ctx.granted != PARK_BOUND_GRANT_NS ||
	    scx_bpf_now() - t->parked_clock < PARK_BOUND_NS)
		return;
	for (int i = 0; i < TEMPER_GATE_DEPTH; i++)
		books[t->ctx.gates.slots[i]].debt += PARK_BOUND_GRANT_NS;
	forced++;
}

/* A limit is another one now. from: what it was. */
static void note_change(u32 slot, const struct limit *from, double unused)
{
	const struct limit *to = &gate_store[slot].limit;
	struct book *b = &books[slot];
	double cap;

	b->limited_at = now;
	b->stop_since = 0;
	b->lost = 0;
	if (!to->quota_us)
		return;
	cap = from->quota_us ? cap_of(to) : grain_of(to);
	if (!from->quota_us) {
		b->ideal = cap;
		b->debt = 0;
	} else if (b->ideal > cap) {
		b->ideal = cap;
	}
	/* Grants in use stay, be they more than it holds. */
	if (b->debt < unused - cap)
		b->debt = unused - cap;
}

/* Time goes on, at one limit: n threads run below it. */
static void pass(u32 slot, double dt, u32 n, bool kept, bool held, bool large)
{
	struct book *b = &books[slot];
	double comes = rate(&gate_store[slot].limit) * dt, room, got;

	room = cap_of(&gate_store[slot].limit) - b->ideal + n * dt;
	got = comes < room ? comes : room > 0 ? room : 0;
	b->ideal += got - n * dt;
	b->debt = b->debt > got ? b->debt - got : 0;
	if (!gate_store[slot].waiting) {
		b->lost = 0;
		return;
	}
	came_waiting += comes;
	lost_waiting += comes - got;
	if (kept && !held)
		lost_kept += comes - got;
	if (!kept && !held && !large)
		b->lost += comes - got;
}

static void pass_time(u64 to)
{
	u64 dt = to - now;

	for (u32 slot = 1; slot < NR_SLOTS; slot++) {
		bool kept = false, held = false, large = false;
		u32 n = 0;

		if (!limited(slot))
			continue;
		for (int i = 0; i < nr_threads; i++) {
			const struct thread *t = &threads[i];

			if (index_in(&t->ctx.gates, slot) < 0)
				continue;
			n += t->seen.on;
			kept |= holds(t, slot) && t->place == SLEEPS;
			held |= holds(t, slot) && t->place == READY;
			large |= t->ctx.granted > grant_most(&gate_store[slot].limit);
		}
		pass(slot, dt, n, kept, held, large);
	}
	for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
		struct thread *t = cpus[cpu].runs;

		if (!t)
			continue;
		t->task.se.sum_exec_runtime += dt - dt * stolen / 100;
		if (t->seen.on && !t->stay && overrun(t) > 0)
			t->strays += dt;
		t->wants -= dt < t->wants ? dt : t->wants;
		t->stay -= dt < t->stay ? dt : t->stay;
	}
	now = to;
}

/* The gate's sums are those of its threads. */
static void check_books(u32 slot)
{
	const struct gate *g = &gate_store[slot];
	u64 began = 0, running = 0, admitted = 0, kept = 0;
	s64 granted = 0, kept_ns = 0;

	for (int i = 0; i < nr_threads; i++) {
		const struct thread *t = &threads[i];

		if (index_in(&t->ctx.gates, slot) < 0)
			continue;
		running += t->seen.on;
		began += t->seen.on ? t->seen.clock : 0;
		if (t->seen.on ? !t->ctx.granted : !holds(t, slot))
			continue;
		admitted++;
		granted += t->ctx.granted;
		kept += t->ctx.keeps;
		kept_ns += t->ctx.keeps ? t->ctx.granted : 0;
	}
	if (g->running != running || g->began != began)
		fail("its sums of those who run are wrong", slot);
	if (g->admitted != admitted || g->granted != granted)
		fail("its sums of grants are wrong", slot);
	if (g->kept != kept || g->kept_ns != kept_ns)
		fail("its sums of kept grants are wrong", slot);
	if (g->waiting != (u32)nr_parked[slot])
		fail("its sum of those who wait is wrong", slot);
	if (g->counters.used_ns != books[slot].used)
		fail("what it says was used is not what was", slot);
}

/* In no span more than the bound, and no token out of nothing, or lost. */
static void check_use(u32 slot)
{
	const struct gate *g = &gate_store[slot];
	struct bucket bucket = g->bucket;
	double over = 0, has;

	for (int i = 0; i < nr_threads; i++)
		if (threads[i].seen.on && index_in(&threads[i].seen.gates, slot) >= 0)
			over += overrun(&threads[i]);
	if (books[slot].ideal < -books[slot].debt - over - slack_of(slot))
		fail("more was used than the limit allows", slot);
	bucket_fill(&bucket, &g->limit, gate_unused(g, now), now);
	has = (double)bucket.level / g->limit.period_us + gate_unused(g, now);
	if (has > books[slot].ideal + slack_of(slot))
		fail("tokens came out of nothing", slot);
	if (has < books[slot].ideal - slack_of(slot))
		fail("tokens were lost", slot);
	if (books[slot].lost > slack_of(slot) + rate(&g->limit) * 4 * LATE_NS)
		fail("tokens were lost while a thread waited and all grants were run on", slot);
}

/* Somebody waits and nobody runs: no longer than the next grant takes to come. */
static void check_stop(u32 slot)
{
	const struct limit *l = &gate_store[slot].limit;
	struct book *b = &books[slot];
	double takes, most = KEEP_NS;
	bool stops = nr_parked[slot];

	for (int i = 0; i < nr_threads && stops; i++)
		if (index_in(&threads[i].ctx.gates, slot) >= 0 &&
		    (threads[i].place == ON_CPU || threads[i].place == READY))
			stops = false;
	if (!stops) {
		b->stop_since = 0;
		return;
	}
	if (!b->stop_since) {
		b->stop_since = now;
		b->stop_ideal = b->ideal;
	}
	takes = ((double)grant_least(l) - b->stop_ideal + slack_of(slot)) / rate(l);
	if (takes > most)
		most = takes;
	if (now - b->stop_since > most + 4 * (LATE_NS + SKEW_NS))
		fail("threads wait, nobody runs, and the next grant was there", slot);
}

static void check_waits(u32 slot)
{
	for (int i = 0; i < nr_parked[slot]; i++) {
		const struct thread *t = parked[slot][i];

		if ((s64)(now - t->parked_at) > (s64)(PARK_BOUND_NS + 2 * LATE_NS))
			fail("a thread waits for longer than the bound", slot);
		if (!limited(slot) && now - t->here_at > 2 * LATE_NS &&
		    now - books[slot].limited_at > 2 * LATE_NS)
			fail("a thread waits at a limit that was lifted", slot);
	}
}

/* Without a grant, no thread goes on for long where it could be parked. Old kernels cannot tell. */
static void check_strays(void)
{
	if (!has_task_work)
		return;
	for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
		const struct thread *t = cpus[cpu].runs;

		if (t && t->strays > 4 * (DEBT_SLICE_NS + LATE_NS))
			fail("a thread runs in user mode without a grant", t->ctx.gates.slots[0]);
	}
}

/* After each operation. */
static void check_sums(void)
{
	for (u32 slot = 1; slot < NR_SLOTS; slot++)
		if (gate_store[slot].cgroup)
			check_books(slot);
}

/* After time went on. */
static void check_promises(void)
{
	check_strays();
	for (u32 slot = 1; slot < NR_SLOTS; slot++) {
		if (!gate_store[slot].cgroup)
			continue;
		check_waits(slot);
		if (!limited(slot))
			continue;
		check_use(slot);
		check_stop(slot);
	}
}

#endif
