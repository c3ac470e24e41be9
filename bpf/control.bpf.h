/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The agent's side: plans, heartbeat, dead-man, exit.
 */
#ifndef TEMPER_CONTROL_BPF_H
#define TEMPER_CONTROL_BPF_H

/* ns without a heartbeat until the dead-man exits; 0: never. Set before the load. */
const volatile u64 dead_man_ns;

struct control {
	struct bpf_timer timer; /* rescue and dead-man */
	u64 heartbeat_at;
	u64 dead_man_ns; /* for status */
	u64 live; /* a pinned timer outlives the detach: it stops itself */
};

/* One entry. Written by the programs below; read by internal/sched.State. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} controls SEC(".maps");

/* How the last attach ended: one entry, written by ops.exit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct temper_exit_info);
} exits SEC(".maps");

static __always_inline struct control *lookup_control(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&controls, &key);
}

static int rescue_timer_fired(void *map, u32 *key, struct control *control)
{
	static char stale[] = "no heartbeat from the agent for %llu ms";
	u64 now = bpf_ktime_get_ns(), period;
	int err;

	if (!control->live)
		return 0;
	if (is_stale(control->heartbeat_at, now, dead_man_ns)) {
		unsigned long long ms[] = { (now - control->heartbeat_at) / 1000000 };

		scx_bpf_exit_bstr(TEMPER_EXIT_STALE, stale, ms, sizeof(ms));
		return 0;
	}
	period = anybody_waits() ? RESCUE_PERIOD_NS : RESCUE_IDLE_PERIOD_NS;
	rescue_all();
	open_stuck_gates(pace_now());
	err = bpf_timer_start(&control->timer, period, 0);
	/* No rescue and no dead-man any more: the node must not stay with us. */
	if (err)
		temper_error("re-arm the rescue timer: %d", err);
	return 0;
}

static __always_inline s32 start_rescue_timer(void)
{
	struct control *control = lookup_control();
	s32 err;

	if (!control)
		return -2; /* ENOENT */
	control->heartbeat_at = bpf_ktime_get_ns();
	control->dead_man_ns = dead_man_ns;
	control->live = 1;
	err = bpf_timer_init(&control->timer, &controls, CLOCK_MONOTONIC);
	if (err && err != -16) /* EBUSY: from an attach before this one */
		return err;
	bpf_timer_set_callback(&control->timer, rescue_timer_fired);
	return bpf_timer_start(&control->timer, RESCUE_PERIOD_NS, 0);
}

static __always_inline void record_exit(struct scx_exit_info *info)
{
	u32 key = 0;
	struct temper_exit_info *exit = bpf_map_lookup_elem(&exits, &key);
	struct control *control = lookup_control();

	if (control)
		control->live = 0;
	if (!exit)
		return;
	bpf_probe_read_kernel_str(exit->reason, sizeof(exit->reason), info->reason);
	bpf_probe_read_kernel_str(exit->message, sizeof(exit->message), info->msg);
	exit->code = info->exit_code;
	exit->at_ns = bpf_ktime_get_ns();
	exit->kind = info->kind;
}

/*
 * Put the plan of the other slot in force, whole. Refused unless it was made
 * for exactly the next generation. Who fills a slot holds the node's plan lock
 * (internal/agent): the generation alone does not keep two writers apart.
 */
SEC("syscall")
int temper_apply(struct temper_apply_args *args)
{
	struct temper_plan_head *head = plan_head(args->generation);
	u32 key = 0;
	u64 *generation = bpf_map_lookup_elem(&plan_generation, &key);
	u64 before = args->generation - 1;

	if (!head || !generation || !args->generation)
		return -22; /* EINVAL */
	if (head->generation != args->generation || head->nr_fences >= TEMPER_MAX_FENCES ||
	    head->lend > TEMPER_LEND_WHOLE_LAYER)
		return -22; /* EINVAL */
	if (__sync_val_compare_and_swap(generation, before, args->generation) != before)
		return -11; /* EAGAIN: somebody else applied a plan meanwhile */
	return 0;
}

/*
 * Who waits in the queue of a tier it no longer has is moved at once, by the timer, or
 * by its next pass if it runs already. verifier: a call would be walked once more.
 */
SEC("syscall")
int temper_requeue(void *ctx)
{
	struct control *control = lookup_control();

	return control && control->live ? bpf_timer_start(&control->timer, 0, 0) : 0;
}

/*
 * The limit of a cgroup, where the kernel does not tell of it: before v6.17. A
 * quota of 0 lifts it.
 */
SEC("syscall")
int temper_set_limit(struct temper_limit_args *args)
{
	u64 quota_us = args->quota_us ?: NO_QUOTA;
	struct group_ctx *group;
	struct cgroup *cgrp;
	int err = -2; /* ENOENT: no cgroup_init, without the cpu controller */

	cgrp = bpf_cgroup_from_id(args->cgroup);
	if (!cgrp)
		return err;
	bpf_rcu_read_lock();
	group = bpf_cgrp_storage_get(&group_ctxs, cgrp, NULL, 0);
	if (group) {
		set_limit(group, args->cgroup, args->period_us, quota_us, args->burst_us);
		err = 0;
	}
	bpf_rcu_read_unlock();
	bpf_cgroup_release(cgrp);
	return err;
}

SEC("syscall")
int temper_heartbeat(void *ctx)
{
	struct control *control = lookup_control();

	if (control)
		control->heartbeat_at = bpf_ktime_get_ns();
	return 0;
}

#endif
