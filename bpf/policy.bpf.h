/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The decisions, apart from the mechanism: scalars in, scalar out. Each is
 * unit-tested through BPF_PROG_RUN (policy_test.bpf.c).
 */
#ifndef TEMPER_POLICY_BPF_H
#define TEMPER_POLICY_BPF_H

/*
 * How long a task runs before it queues again. A tick ends it: with HZ=250 after
 * 8 ms at most. A preempting wakeup does not wait for that.
 */
#define SLICE_NS (5ULL * 1000 * 1000)

/*
 * The starvation bound. A timer takes tasks that waited too long out of their
 * queue and gives each to a CPU, which serves it before any tier. Two waits are
 * too long:
 *
 *  - TIER_STARVES_NS, for the first task of a tier that no CPU served since:
 *    tiers above it saturate the node. A lone task runs within 100 ms.
 *  - RESCUE_AFTER_NS, for any task: it is bound to a CPU that others saturate,
 *    or its tier is crowded.
 *
 * While higher tiers wait, a CPU serves one such task per RESCUE_GAP_NS; if it
 * has many, all of them within RESCUE_SPREAD_NS, but never sooner than
 * RESCUE_GAP_MIN_NS after another: a crowd must not take the node from those
 * above it. With n of them to a CPU a task runs within RESCUE_AFTER_NS +
 * RESCUE_PERIOD_NS + n * (gap + a tick): inside WAIT_BOUND_NS up to n = 48 at
 * HZ=250, where they take 29 % of the CPU. Beyond, waits grow with n.
 */
#define WAIT_BOUND_NS (1000ULL * 1000 * 1000)
#define TIER_STARVES_NS (50ULL * 1000 * 1000)
#define RESCUE_AFTER_NS (300ULL * 1000 * 1000)
#define RESCUE_PERIOD_NS (20ULL * 1000 * 1000)
#define RESCUE_GAP_NS (40ULL * 1000 * 1000)
#define RESCUE_GAP_MIN_NS (10ULL * 1000 * 1000)
#define RESCUE_SPREAD_NS (400ULL * 1000 * 1000)
/* A rescued task that was preempted before it ran this long is still owed. */
#define RESCUE_SLICE_NS (1ULL * 1000 * 1000)

/* Weight of a cgroup that set none, as in the kernel. */
#define DEFAULT_WEIGHT 100

/* A waking task preempts one of a lower tier; one of its own: is_behind_peers. */
static __always_inline bool may_preempt(u32 waking, u32 running)
{
	return running < TEMPER_TIERS && waking < running;
}

/*
 * A tier below critical may use an idle CPU of a fence if the lending policy
 * lets it. busy: the fence's pod runs somewhere on its fence; spare: if this
 * CPU were lent, another CPU (with SMT: a whole core) of the fence stays idle.
 */
static __always_inline bool may_lend(u32 lend, bool busy, bool spare)
{
	switch (lend) {
	case TEMPER_LEND_LANDING:
		return !busy || spare;
	case TEMPER_LEND_WHOLE_LAYER:
		return !busy;
	default:
		return true;
	}
}

/* Two threads of a core slow each other down: background is not worth that. */
static __always_inline bool may_share_core(u32 tier, bool sibling_critical)
{
	return tier != TEMPER_BACKGROUND || !sibling_critical;
}

/* Signed distance, so that the clocks may wrap. */
static __always_inline bool vtime_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/*
 * A group keeps at most that much credit: an older vtime would let it own its
 * tier's CPUs for as long as it slept. One that wants more than it gets was made
 * to wait, by ticks that come late for slices, and may catch up.
 */
#define CREDIT_WOKEN_NS (2 * SLICE_NS)
#define CREDIT_WAITED_NS (8 * SLICE_NS)

/* since: how long ago a thread of the group last wanted more than its slice. */
static __always_inline u64 credit_of(s64 since)
{
	return since < (s64)CREDIT_WAITED_NS ? CREDIT_WAITED_NS : CREDIT_WOKEN_NS;
}

/* Virtual time that ns of CPU cost a group. Weights are cgroup's, 1 to 10000. */
static __always_inline u64 vtime_cost(u64 ns, u32 weight)
{
	return ns * DEFAULT_WEIGHT / (weight ?: 1);
}

/*
 * A credit of ns in virtual time, in which a light group's slices are long. A heavy one's
 * are short, but those of the groups that it waits for are not.
 */
static __always_inline u64 credit_cost(u64 ns, u32 weight)
{
	return vtime_cost(ns, weight < DEFAULT_WEIGHT ? weight : DEFAULT_WEIGHT);
}

static __always_inline u64 clamp_vtime(u64 vtime, u64 vtime_now, u64 credit)
{
	u64 floor = vtime_now - credit;

	return vtime_before(vtime, floor) ? floor : vtime;
}

/*
 * Peers, of one tier. A task that ran this long since it woke may be preempted by
 * them. To end shorter runs, of those who answer requests themselves, would trade
 * one task's tail for another's.
 */
#define PEER_RAN_NS (2ULL * 1000 * 1000)

static __always_inline bool yields_to_peers(u32 tier, u64 ran)
{
	return tier < TEMPER_BACKGROUND && ran >= PEER_RAN_NS;
}

/*
 * At once by a waking task whose group is that far behind its tier in virtual time: by
 * most of what a group that used nothing keeps, or it would come to queue behind
 * peers that it passed.
 */
#define PEER_BEHIND_NS (CREDIT_WOKEN_NS * 4 / 5)

static __always_inline bool is_behind_peers(u64 tag, u64 vtime_now, u32 weight)
{
	return vtime_before(tag + credit_cost(PEER_BEHIND_NS, weight), vtime_now);
}

/*
 * Otherwise a timer, which ticks this often and for so long after a task woke and
 * queued, ends its slice as soon as it is ahead of who waits.
 */
#define PEER_PERIOD_NS (1ULL * 1000 * 1000)
#define PEER_WATCH_NS (8 * PEER_PERIOD_NS)

static __always_inline s64 vtime_cost_signed(s64 ns, u32 weight)
{
	return ns < 0 ? -(s64)vtime_cost(-ns, weight) : (s64)vtime_cost(ns, weight);
}

/* How long a woken task is taken to run: never 0, which means that nothing was paid. */
static __always_inline u64 expected_run(u64 ran_before)
{
	return ran_before && ran_before < SLICE_NS ? ran_before : SLICE_NS;
}

/*
 * At a tick CPUs look for their next threads together, and none of them finds those
 * that the others are about to put back: one whose group is behind would wait while
 * groups ahead of it are served, at each tick anew. Such a thread goes on instead,
 * for so long in all.
 */
#define GO_ON_NS (4 * SLICE_NS)

static __always_inline bool may_go_on(u64 tag, u64 vtime_now, u32 weight, s64 ran)
{
	return ran < (s64)GO_ON_NS && vtime_before(tag + vtime_cost(SLICE_NS, weight), vtime_now);
}

/*
 * A CPU fetches a thread of another LLC before those of its own if it is due sooner by
 * more than this much of its group's time: at home its cache is warm. Less than the credit of a
 * group that wants more than it gets: little of its share is lost meanwhile.
 */
#define AWAY_NS (2 * SLICE_NS)

/* The tag by which a queued thread counts in other LLCs. */
static __always_inline u64 away_tag(u64 tag, u32 weight)
{
	return tag + vtime_cost(AWAY_NS, weight);
}

/* Time since an instant that another CPU's clock may put a moment ahead of now. */
static __always_inline s64 elapsed(u64 since, u64 now)
{
	return now - since;
}

/*
 * A group that met no other, or a CPU on which none met, for long. Who may run nowhere
 * else would have come within the starvation bound.
 */
static __always_inline bool is_alone(u64 met_at, u64 now)
{
	return elapsed(met_at, now) > (s64)WAIT_BOUND_NS;
}

/* The tier's clock is that of groups that compete, if there are any. */
static __always_inline bool moves_clock(u64 met_at, u64 tier_met_at, u64 now)
{
	return !is_alone(met_at, now) || is_alone(tier_met_at, now);
}

/* A queued task waited too long: serve it whatever its tier. */
static __always_inline bool is_starving(u64 queued_at, u64 tier_served_at, u64 now)
{
	s64 waited = elapsed(queued_at, now);

	if (waited >= (s64)RESCUE_AFTER_NS)
		return true;
	return waited >= (s64)TIER_STARVES_NS &&
	       elapsed(tier_served_at, now) >= (s64)TIER_STARVES_NS;
}

/*
 * What a rescue owes a task: a slice that nobody takes. Only its turn, to be preempted in
 * as ever, if CPUs come to its tier by themselves where it may run: it waited for its
 * peers, not for higher tiers.
 */
#define OWED_TURN 1
static __always_inline u64 owed_by_rescue(u64 turn_at, u64 now)
{
	return elapsed(turn_at, now) < (s64)TIER_STARVES_NS ? OWED_TURN : RESCUE_SLICE_NS;
}

/*
 * One that cannot migrate stands behind those on its CPU that outrank it, and got nowhere
 * if it ran no longer than switches take.
 */
#define STAY_RAN_NS (100ULL * 1000)

/* While a higher tier waits, a CPU spaces out the n rescued tasks that it has. */
static __always_inline bool may_rescue(u64 last_rescue_at, u64 now, bool higher_waits, u64 n)
{
	s64 since = elapsed(last_rescue_at, now);

	if (!higher_waits || since >= (s64)RESCUE_GAP_NS)
		return true;
	return since >= (s64)RESCUE_GAP_MIN_NS && since * (s64)n >= (s64)RESCUE_SPREAD_NS;
}

/* No agent has reported for too long: its plan may describe pods long gone. */
static __always_inline bool is_stale(u64 heartbeat_at, u64 now, u64 dead_man_ns)
{
	return dead_man_ns && elapsed(heartbeat_at, now) > (s64)dead_man_ns;
}

#endif
