/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Gates: the limited cgroups, their tokens, and who of them runs and waits. What
 * threads do at them is in pace.bpf.h.
 */
#ifndef TEMPER_GATE_BPF_H
#define TEMPER_GATE_BPF_H

/*
 * The pacer's clock is that of its timers: in a timer scx_bpf_now may give what the
 * CPU's runqueue saw last, milliseconds ago, and a grant would last that much longer.
 */
static __always_inline u64 pace_now(void)
{
	return bpf_ktime_get_ns();
}

/* As the kernel says that there is no limit. */
#define NO_QUOTA (~0ULL)
/* No burst is longer: its tokens would not fit a bucket. */
#define MOST_BURST (1ULL << 31)

/* Is a gate's timer at work? */
enum gate_look {
	LOOK_OVER,
	LOOKING,
	LOOK_AGAIN, /* and somebody asked for another look meanwhile */
};

/* A limited cgroup. Slot 0 is nobody's. */
struct gate {
	struct bpf_spin_lock lock;
	u32 running; /* threads on CPUs, on debt included */
	u64 cgroup; /* 0: free */
	struct limit limit; /* quota 0: lifted, and who waits is let go */
	struct bucket bucket;
	s64 granted; /* ns of the grants in use */
	u64 began; /* sum of when those on CPUs began */
	u32 admitted; /* grants in use, waiting for a CPU included */
	u32 kept; /* of those, the ones whose threads sleep */
	u32 kept_epoch; /* kept grants of another one are void */
	s64 kept_ns;
	u64 kept_since; /* the first of them */
	u32 waiting; /* in the gate's queue, the one first that waits for longest */
	u64 paced_since; /* somebody waits since then; 0: nobody */
	u64 stop_since; /* and nobody runs since then */
	u64 paced_period; /* the last period of the limit in which somebody waited */
	struct temper_pace_counters counters;
	struct bpf_timer timer;
	u64 opens_at; /* when the timer fires; 0: it was not started */
	u32 look; /* enum gate_look */
};

/* Written by cgroup_init, cgroup_set_bandwidth and, under its lock, by any CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TEMPER_MAX_GATES);
	__type(key, u32);
	__type(value, struct gate);
} gates SEC(".maps");

/* Slots that are nobody's, the one that is so for longest first. Filled by init. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, TEMPER_MAX_GATES);
	__type(value, u32);
} free_gates SEC(".maps");

/* A gate's timer could not be started: the next pass of the rescue timer opens it. */
static bool gates_stuck;

/* Limits that found no slot, and are not held. */
static u64 limits_unheld;

/*
 * Who sleeps keeps its grant for a while. A server's thread asks and answers in
 * turns: without a grant of its own after each turn it would have to wait, and
 * waiting costs more than the turn.
 */
#define KEEP_NS (500ULL * 1000)
/* If it is worth it. */
#define KEEP_LEAST_NS (20LL * 1000)
/*
 * And no more than a part of a grain, for all who sleep: with all of it kept there
 * would never be enough for those who wait.
 */
#define KEEP_PART 8

/* Why there was no grant. */
struct refusal {
	u32 slot; /* of the gate that had none */
	u64 retry_at;
};

static __always_inline struct gate *lookup_gate(u32 slot)
{
	return slot ? bpf_map_lookup_elem(&gates, &slot) : NULL;
}

/* What is left of the grants in use, less what runs on debt. The gate's lock is held. */
static __always_inline s64 gate_unused(const struct gate *g, u64 now)
{
	return g->granted - (s64)(g->running * now - g->began);
}

/* How much may be kept at a gate beside what is. Without the lock: a little too much now and then. */
static __always_inline s64 keep_room(const struct gate *g)
{
	u64 part = (u64)bucket_grain(&g->limit) / (KEEP_PART * g->limit.period_us);

	return (s64)part - g->kept_ns;
}

/* Who waits and who runs changed. The gate's lock is held. */
static __always_inline void note_pace(struct gate *g, u64 now)
{
	struct temper_pace_counters *c = &g->counters;

	/* The clocks of two CPUs may differ. */
	if (g->stop_since && (g->running || !g->waiting)) {
		if ((s64)(now - g->stop_since) > (s64)c->longest_stop_ns)
			c->longest_stop_ns = now - g->stop_since;
		g->stop_since = 0;
	}
	if (g->waiting) {
		u64 period = now / (g->limit.period_us * 1000 ?: 1);

		if (!g->running && !g->stop_since)
			g->stop_since = now;
		if (!g->paced_since)
			g->paced_since = now;
		if (g->paced_period != period)
			c->paced_periods++;
		g->paced_period = period;
	} else if (g->paced_since) {
		if (now > g->paced_since)
			c->paced_ns += now - g->paced_since;
		g->paced_since = 0;
	}
}

/* Grants that were kept for too long go back. The gate's lock is held. */
static __always_inline void take_kept_back(struct gate *g, u64 now)
{
	if (!g->kept || (s64)(now - g->kept_since) < (s64)KEEP_NS)
		return;
	bucket_return(&g->bucket, &g->limit, g->kept_ns);
	g->granted -= g->kept_ns;
	g->admitted -= g->kept;
	g->kept = 0;
	g->kept_ns = 0;
	g->kept_epoch++;
}

/* What a thread that asks now gets. The gate's lock is held, its bucket filled. */
static __always_inline u64 grant_now(const struct gate *g, s64 unused)
{
	if (!may_admit(&g->bucket, &g->limit, g->admitted - g->kept, unused))
		return 0;
	return grant_of(&g->bucket, &g->limit);
}

/*
 * When to look again, if that is nothing. Nothing comes into a full bucket, and
 * nobody is admitted, until a grant ends, and that opens the gate.
 */
static __always_inline u64 grant_later(const struct gate *g, s64 unused, u64 now)
{
	bool full = g->bucket.level + unused * (s64)g->limit.period_us >= bucket_cap(&g->limit);
	u64 at = now + grant_most(&g->limit);

	if (!full && may_admit(&g->bucket, &g->limit, g->admitted - g->kept, unused))
		at = bucket_ready_at(&g->bucket, &g->limit, grant_least(&g->limit));
	if (g->kept && (s64)(at - g->kept_since) > (s64)KEEP_NS)
		at = g->kept_since + KEEP_NS;
	return at;
}

/* Is a kept grant still there? Then it is in use again. The gate's lock is held. */
static __always_inline bool resume_kept(struct gate *g, u64 ns, u32 epoch)
{
	if (!g->kept || g->kept_epoch != epoch)
		return false;
	g->kept--;
	g->kept_ns -= ns;
	return true;
}

static __always_inline bool resume_at_gate(struct gate *g, u64 ns, u32 epoch)
{
	bool kept;

	bpf_spin_lock(&g->lock);
	kept = resume_kept(g, ns, epoch);
	bpf_spin_unlock(&g->lock);
	return kept;
}

/*
 * verifier: a function that is not inlined is walked once in a program, not for
 * each limit above a thread and each way to get there.
 *
 * A grant from one gate, at most so much; 0: not before no->retry_at. Without a
 * limit any more, everything is granted.
 */
__noinline u64 take_from(u32 slot, u64 most, u64 now, struct refusal *no __arg_nonnull)
{
	struct gate *g = lookup_gate(slot);
	u64 grant = 0;
	s64 unused;

	if (!g)
		return most;
	bpf_spin_lock(&g->lock);
	if (!g->limit.quota_us) {
		grant = most;
	} else {
		take_kept_back(g, now);
		unused = gate_unused(g, now);
		bucket_fill(&g->bucket, &g->limit, unused, now);
		grant = grant_now(g, unused);
		if (!grant)
			no->retry_at = grant_later(g, unused, now);
		if (grant > most)
			grant = most;
	}
	if (grant) {
		bucket_take(&g->bucket, &g->limit, grant);
		g->admitted++;
		g->granted += grant;
	}
	bpf_spin_unlock(&g->lock);
	return grant;
}

/* A grant, tokens or not. */
static __always_inline void force_from(struct gate *g, u64 ns)
{
	bpf_spin_lock(&g->lock);
	bucket_take(&g->bucket, &g->limit, ns);
	g->admitted++;
	g->granted += ns;
	bpf_spin_unlock(&g->lock);
}

/* Give back from a grant that never began: all of it, or what the gate above did not allow. */
__noinline int give_back(u32 slot, u64 ns, bool whole)
{
	struct gate *g = lookup_gate(slot);

	if (!g)
		return 0;
	bpf_spin_lock(&g->lock);
	bucket_return(&g->bucket, &g->limit, ns);
	g->granted -= ns;
	if (whole && g->admitted && !--g->admitted)
		g->granted = 0;
	bpf_spin_unlock(&g->lock);
	return 0;
}

/* A grant that every limit above the thread allows; 0: *no says whose does not. */
__noinline u64 take_grant(struct gate_chain *chain __arg_nonnull, u64 now,
			  struct refusal *no __arg_nonnull)
{
	u64 grant = GRAIN_NS, got;
	int i, j;

	for (i = 0; i < TEMPER_GATE_DEPTH; i++) {
		u32 slot = chain->slots[i];

		if (!slot)
			break;
		got = take_from(slot, grant, now, no);
		if (got == grant)
			continue;
		for (j = 0; j < TEMPER_GATE_DEPTH && j < i; j++)
			give_back(chain->slots[j], grant - got, !got);
		no->slot = slot;
		if (!got)
			return 0;
		grant = got;
	}
	return grant;
}

/* A thread begins, at now, to run below a gate. Returns whether the grant that it kept is lost. */
__noinline int begin_at_gate(u32 slot, u64 now, u64 kept_ns, u32 kept_epoch)
{
	struct gate *g = lookup_gate(slot);
	bool lost;

	if (!g)
		return true;
	bpf_spin_lock(&g->lock);
	/* What came until now found the bucket as full as it was: not as it is when this ends. */
	if (g->limit.quota_us)
		bucket_fill(&g->bucket, &g->limit, gate_unused(g, now), now);
	g->running++;
	g->began += now;
	lost = kept_ns && !resume_kept(g, kept_ns, kept_epoch);
	note_pace(g, now);
	bpf_spin_unlock(&g->lock);
	return lost;
}

/* What a thread did at a gate. */
struct stay {
	u64 began;
	u64 used; /* ns */
	u64 granted;
	u64 keep; /* of that, for when it wakes */
};

/*
 * It ends, or its grant does. Returns when somebody who waits may pass; 0: nobody
 * waits. With nobody left the sums are as they must be, whatever a race did to them.
 */
__noinline u64 end_at_gate(u32 slot, struct stay *stay __arg_nonnull, u64 now,
			   u32 *kept_epoch __arg_nonnull)
{
	u64 spent = stay->granted - stay->keep;
	struct gate *g = lookup_gate(slot);
	u64 opens_at = 0;
	s64 unused;

	if (!g)
		return 0;
	bpf_spin_lock(&g->lock);
	if (g->limit.quota_us) {
		bucket_fill(&g->bucket, &g->limit, gate_unused(g, now), now);
		bucket_return(&g->bucket, &g->limit, (s64)spent - (s64)stay->used);
	}
	/* An exiting thread may outlive its cgroup, and drop_limit has counted it out. */
	if (g->running) {
		g->began -= stay->began;
		if (!--g->running)
			g->began = 0;
	}
	g->granted -= spent;
	if (stay->keep) {
		if (!g->kept++)
			g->kept_since = now;
		g->kept_ns += stay->keep;
		*kept_epoch = g->kept_epoch;
	} else if (stay->granted && g->admitted && !--g->admitted) {
		g->granted = 0;
	}
	g->counters.used_ns += stay->used;
	if (stay->used > spent)
		g->counters.debt_ns += stay->used - spent;
	note_pace(g, now);
	if (g->waiting) {
		opens_at = now;
		unused = gate_unused(g, now);
		if (g->limit.quota_us && !grant_now(g, unused))
			opens_at = grant_later(g, unused, now);
	}
	bpf_spin_unlock(&g->lock);
	return opens_at;
}

/* A timer that is so late was lost. */
#define TIMER_LATE_NS (1000ULL * 1000)

/*
 * Does a timer fire at fires_at, and is that by at? To start one costs a thousand
 * instructions.
 */
static __always_inline bool fires_by(u64 fires_at, u64 at, u64 now)
{
	return fires_at && (s64)(at - fires_at) >= 0 && elapsed(fires_at, now) < (s64)TIMER_LATE_NS;
}

/*
 * If two CPUs start a timer at once, the earlier time counts: who finds another
 * one's starts it again.
 */
__noinline int start_gate_timer(u32 slot, u64 at, u64 now)
{
	struct gate *g = lookup_gate(slot);
	u64 seen;
	int i;

	if (!g)
		return 0;
	seen = *(volatile u64 *)&g->opens_at;
	if (fires_by(seen, at, now))
		return 0;
	/* It is late, and so are those for whom it was started. */
	if (seen && (s64)(at - seen) >= 0)
		at = now;
	for (i = 0; i < 2; i++) {
		*(volatile u64 *)&g->opens_at = at;
		if (bpf_timer_start(&g->timer, (s64)(at - now) > 0 ? at - now : 0, 0)) {
			g->opens_at = 0;
			gates_stuck = true;
		}
		seen = *(volatile u64 *)&g->opens_at;
		if (!seen || seen == at)
			break;
		if ((s64)(seen - at) < 0)
			at = seen;
	}
	return 0;
}

/*
 * Somebody may have to be let through: now, or when tokens came. With interrupts
 * off a start may be heard after one that came later. So the timer, at work, is
 * asked to look again and not started, and nobody but itself starts it for a time
 * far off.
 */
__noinline int open_gate_at(u32 slot, u64 at, u64 now)
{
	struct gate *g = lookup_gate(slot);

	if ((s64)(at - now) > (s64)GRAIN_NS)
		at = now + GRAIN_NS;
	/* A barrier: who waits is counted in before it is known whether a timer runs. */
	if (!g || fires_by(__sync_fetch_and_add(&g->opens_at, 0), at, now))
		return 0;
	if (__sync_val_compare_and_swap(&g->look, LOOKING, LOOK_AGAIN) != LOOK_OVER)
		return 0;
	return start_gate_timer(slot, at, now);
}

/*
 * Since when a thread waits at a gate, with the gate's slot in the lowest bits. One word: the
 * kernel, which takes it out to change it, and a gate's timer may meet, and who changes the
 * word sees to the counts. It is another one each time.
 */
#define PARKED_SLOT (TEMPER_MAX_GATES - 1ULL)
_Static_assert((TEMPER_MAX_GATES & PARKED_SLOT) == 0, "a power of two");

static __always_inline u64 parked_word(u64 since, u32 slot)
{
	return (since & ~PARKED_SLOT) | slot;
}

static __always_inline u32 parked_slot(u64 parked)
{
	return parked & PARKED_SLOT;
}

static __always_inline u64 parked_since(u64 parked)
{
	return parked & ~PARKED_SLOT;
}

static __always_inline void count_waiting(u32 slot, s32 change, u64 now)
{
	struct gate *g = lookup_gate(slot);

	if (!g)
		return;
	bpf_spin_lock(&g->lock);
	if (change > 0 || g->waiting)
		g->waiting += change;
	note_pace(g, now);
	bpf_spin_unlock(&g->lock);
}

/* It waited so, and no longer. */
static __always_inline void count_waited(u64 parked, u64 now)
{
	u64 since = parked_since(parked);
	struct gate *g = lookup_gate(parked_slot(parked));

	if (!g)
		return;
	if ((s64)(now - since) < 0)
		now = since;
	bpf_spin_lock(&g->lock);
	g->counters.waits++;
	g->counters.waited_ns += now - since;
	if (now - since > g->counters.longest_wait_ns)
		g->counters.longest_wait_ns = now - since;
	bpf_spin_unlock(&g->lock);
}

/* The kernel took p out of a gate's queue. Returns how it waited there; 0: it did not. */
static __always_inline u64 take_out(struct task_ctx *tctx, u64 now)
{
	u64 parked = __sync_lock_test_and_set(&tctx->parked, 0);

	if (parked)
		count_waiting(parked_slot(parked), -1, now);
	return parked;
}

#endif
