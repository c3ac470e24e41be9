/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The arithmetic of CPU limits: a token bucket that loses nothing to rounding.
 * Pure, and also compiled for the machine that tests it (bucket_test.go).
 *
 * A pod limited to 1.5 CPUs behaves like a machine with 1.5 CPUs: tokens come at
 * that rate all the time, a thread runs on a grant of them, and what it did not
 * use goes back. In any span W a cgroup uses at most
 *
 *   quota / period * W + quota + burst
 *
 * (a grain instead of the quota, if that is more) plus what its threads run beyond a
 * grant because they were in the kernel.
 *
 * Beyond a grain the bucket holds what was not used, and for that there are as many
 * CPUs as there are threads: a pod below its limit hardly notices it. What a pod at
 * its limit does not use between two grants may be saved, too.
 */
#ifndef TEMPER_BUCKET_BPF_H
#define TEMPER_BUCKET_BPF_H

/* What of the limit's time threads in turns are paced by: no grant is longer. */
#define GRAIN_NS (2500ULL * 1000)
/* Or so much CPU time, where a limit is small: less is not worth a switch. */
#define GRANT_MIN_NS (200ULL * 1000)

/* As cpu.max and cpu.max.burst state it. A quota of 0 is no limit. */
struct limit {
	u64 quota_us;
	u64 period_us;
	u64 burst_us;
};

/*
 * Tokens in units of 1 / period_us nanoseconds: then a nanosecond adds quota_us
 * of them and costs period_us, both whole numbers. Below zero: a debt.
 */
struct bucket {
	s64 level;
	u64 filled_at;
};

static __always_inline s64 bucket_grain(const struct limit *l)
{
	u64 tokens = l->quota_us * GRAIN_NS, least = GRANT_MIN_NS * l->period_us;

	return tokens > least ? tokens : least;
}

static __always_inline s64 bucket_burst(const struct limit *l)
{
	return l->burst_us * 1000 * l->period_us;
}

/* As much as the kernel lets a cgroup have at once: a period's quota, and the burst. */
static __always_inline s64 bucket_cap(const struct limit *l)
{
	s64 quota = l->quota_us * 1000 * l->period_us, grain = bucket_grain(l);

	return (quota > grain ? quota : grain) + bucket_burst(l);
}

/*
 * Add what came since the last time. unused: what is left of the grants in use,
 * below zero if they were overrun; with that the bucket holds no more than its
 * cap, or a thread that finishes its grant would find a full one on top. The
 * clocks of two CPUs may differ: time only goes on.
 */
static __always_inline void bucket_fill(struct bucket *b, const struct limit *l, s64 unused,
					u64 now)
{
	s64 room = bucket_cap(l) - b->level - unused * (s64)l->period_us;
	s64 passed = now - b->filled_at;

	if (passed <= 0)
		return;
	b->filled_at = now;
	if (room <= 0)
		return;
	/* Division first: a product over hours would overflow. */
	if ((u64)passed > (u64)room / l->quota_us)
		b->level += room;
	else
		b->level += passed * l->quota_us;
}

static __always_inline void bucket_take(struct bucket *b, const struct limit *l, s64 ns)
{
	b->level -= ns * (s64)l->period_us;
}

/* Threads that never wait, as the kernel's own, owe more and more: that must not wrap. */
#define BUCKET_MOST_DEBT (1LL << 62)

/* The part of a grant that was not used comes back; what went beyond is a debt. */
static __always_inline void bucket_return(struct bucket *b, const struct limit *l, s64 ns)
{
	b->level += ns * (s64)l->period_us;
	if (b->level < -BUCKET_MOST_DEBT)
		b->level = -BUCKET_MOST_DEBT;
}

/* Nanoseconds that could be granted. */
static __always_inline u64 bucket_tokens(const struct bucket *b, const struct limit *l)
{
	return b->level > 0 ? (u64)b->level / l->period_us : 0;
}

/* When so many nanoseconds will be there, if nobody takes any: no sooner than it was filled. */
static __always_inline u64 bucket_ready_at(const struct bucket *b, const struct limit *l, u64 ns)
{
	s64 missing = (s64)(ns * l->period_us) - b->level;

	if (missing <= 0)
		return b->filled_at;
	return b->filled_at + ((u64)missing + l->quota_us - 1) / l->quota_us;
}

/* A machine of 1.5 CPUs runs two threads at once, not eight. */
static __always_inline u64 admitted_most(const struct limit *l)
{
	return (l->quota_us + l->period_us - 1) / l->period_us;
}

/*
 * May another thread have a grant? One more than that while there is as good as a
 * grain: those who run do not use up what comes, for what switching between them
 * costs. And any number while there is more to spend than a grain.
 */
static __always_inline bool may_admit(const struct bucket *b, const struct limit *l, u64 admitted,
				      s64 unused)
{
	s64 grain = bucket_grain(l);

	if (b->level >= grain && bucket_cap(l) > grain)
		return true;
	return admitted <
	       admitted_most(l) + (b->level + unused * (s64)l->period_us >= grain - (grain >> 4));
}

/*
 * The longest grant: as many as may run at once fit into a grain, and the burst, or
 * the last of them would wait for longer than it takes the others to run.
 */
static __always_inline u64 grant_most(const struct limit *l)
{
	u64 share = (u64)(bucket_grain(l) + bucket_burst(l)) / (admitted_most(l) * l->period_us);

	return share < GRAIN_NS ? share : GRAIN_NS;
}

/*
 * The shortest, which most are: who waits gets one as soon as it is there. Not
 * much shorter than the longest, or threads in turns would get unequal shares.
 * The rest is room for what comes while a thread with a grant waits for a CPU.
 */
static __always_inline u64 grant_least(const struct limit *l)
{
	return grant_most(l) - grant_most(l) / 6;
}

/* The grant for a thread that asks now; 0: it has to wait. */
static __always_inline u64 grant_of(const struct bucket *b, const struct limit *l)
{
	u64 tokens = bucket_tokens(b, l), most = grant_most(l);

	if (tokens < grant_least(l))
		return 0;
	return tokens < most ? tokens : most;
}

/* The limit changed: tokens stay what they are worth, within what the new one holds. */
static __always_inline void bucket_change(struct bucket *b, const struct limit *from,
					  const struct limit *to, s64 unused, u64 now)
{
	s64 room = bucket_cap(to) - unused * (s64)to->period_us;

	bucket_fill(b, from, unused, now);
	/* Toward zero on both sides: BPF divides no negative numbers. */
	if (b->level < 0)
		b->level = -(s64)((u64)-b->level / from->period_us * to->period_us);
	else
		b->level = (u64)b->level / from->period_us * to->period_us;
	if (b->level > room)
		b->level = room;
}

#endif
