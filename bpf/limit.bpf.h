/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits come, change and go.
 */
#ifndef TEMPER_LIMIT_BPF_H
#define TEMPER_LIMIT_BPF_H

/* Gates whose timer did not start. */
static __always_inline void open_stuck_gates(u64 now)
{
	u32 slot;

	if (!gates_stuck)
		return;
	gates_stuck = false;
	for_each_num(slot, 1, TEMPER_MAX_GATES) {
		struct gate *g = lookup_gate(slot);

		if (g && g->waiting)
			open_gate_at(slot, now, now);
	}
}

/* Nobody is at this gate, or nobody counts any more. Its lock is held. */
static __always_inline void reset_sums(struct gate *g)
{
	g->granted = 0;
	g->began = 0;
	g->running = 0;
	g->admitted = 0;
	g->kept = 0;
	g->kept_ns = 0;
	g->kept_epoch++;
	g->paced_since = 0;
	g->stop_since = 0;
}

/* A cgroup gets its first limit. */
static __always_inline void add_gate(struct group_ctx *group, u64 cgroup, const struct limit *limit,
				     u64 now)
{
	struct gate *g;
	u32 slot;

	if (bpf_map_pop_elem(&free_gates, &slot)) {
		__sync_fetch_and_add(&limits_unheld, 1);
		return;
	}
	g = lookup_gate(slot);
	if (!g)
		return;
	bpf_spin_lock(&g->lock);
	g->cgroup = cgroup;
	g->limit = *limit;
	reset_sums(g); /* one that ended late may have changed them */
	g->bucket.level = bucket_grain(limit);
	g->bucket.filled_at = now;
	__builtin_memset(&g->counters, 0, sizeof(g->counters));
	bpf_spin_unlock(&g->lock);
	group->gate = slot;
	/* Who runs now has no grant: what it uses until it stops is a debt. */
	__sync_fetch_and_add(&limits_seq, 1);
}

/* It gets another one, or none. */
static __always_inline void change_gate(struct gate *g, const struct limit *limit, u64 now)
{
	bpf_spin_lock(&g->lock);
	if (!g->limit.quota_us) {
		g->bucket.level = limit->quota_us ? bucket_grain(limit) : 0;
		g->bucket.level -= gate_unused(g, now) * (s64)limit->period_us;
		g->bucket.filled_at = now;
	} else if (limit->quota_us) {
		bucket_change(&g->bucket, &g->limit, limit, gate_unused(g, now), now);
	}
	g->limit = *limit;
	bpf_spin_unlock(&g->lock);
}

/*
 * A quota of more CPUs than there can be is none, too: its tokens might not fit a
 * bucket. Nothing was saved of a limit that was not there.
 */
static __always_inline void set_limit(struct group_ctx *group, u64 cgroup, u64 period_us,
				      u64 quota_us, u64 burst_us)
{
	struct limit limit = { .quota_us = quota_us, .period_us = period_us, .burst_us = burst_us };
	struct gate *g = lookup_gate(group->gate);
	u64 now = pace_now();

	if (!period_us || quota_us / period_us >= TEMPER_MAX_CPUS)
		limit = (struct limit){ .period_us = 1 };
	if (limit.burst_us > MOST_BURST)
		limit.burst_us = MOST_BURST;
	if (g) {
		change_gate(g, &limit, now);
		open_gate_at(group->gate, now, now);
	} else if (limit.quota_us) {
		add_gate(group, cgroup, &limit, now);
	}
}

/* Its cgroup is gone, or the cpu controller was taken from it: then who waits is let go. */
static __always_inline void drop_limit(struct group_ctx *group)
{
	struct gate *g = lookup_gate(group->gate);
	u32 slot = group->gate;
	u64 now = pace_now();

	if (!g)
		return;
	group->gate = 0;
	bpf_spin_lock(&g->lock);
	g->cgroup = 0;
	g->limit.quota_us = 0;
	reset_sums(g);
	bpf_spin_unlock(&g->lock);
	if (g->waiting)
		open_gate_at(slot, now, now);
	bpf_map_push_elem(&free_gates, &slot, BPF_ANY);
}

static __always_inline s32 init_gates(void)
{
	u32 slot;
	s32 err;

	for_each_num(slot, 1, TEMPER_MAX_GATES) {
		struct gate *g = lookup_gate(slot);

		if (!g)
			break;
		err = scx_bpf_create_dsq(gate_dsq(slot), -1);
		if (err)
			return err;
		err = bpf_timer_init(&g->timer, &gates, CLOCK_MONOTONIC);
		if (err == -16) /* EBUSY: of an attach before this one, which freed the slot */
			continue;
		if (err)
			return err;
		bpf_timer_set_callback(&g->timer, gate_opens);
		bpf_map_push_elem(&free_gates, &slot, BPF_ANY);
	}
	return 0;
}

#endif
