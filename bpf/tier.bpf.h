/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The plan: which tier and fence a cgroup belongs to.
 *
 * Only the cgroups that the plan names are stored. A thread belongs to the
 * nearest ancestor of its cgroup that the plan names, so a whole subtree follows
 * its root at once and a new child needs no entry. The answer is cached with
 * the generation it was found in.
 */
#ifndef TEMPER_TIER_BPF_H
#define TEMPER_TIER_BPF_H

/*
 * Plan groups: cgroup id and slot -> tier and fence.
 * Written by the agent (internal/sched.Apply) in the slot not in force, read
 * when a thread's answer is older than the plan. Entries die with the next
 * plan but one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TEMPER_MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct temper_group_key);
	__type(value, struct temper_group);
} plan_groups SEC(".maps");

/* Head of each slot: lending policy, all fenced CPUs. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct temper_plan_head);
} plan_heads SEC(".maps");

/* Fences: slot * TEMPER_MAX_FENCES + id -> its CPUs. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * TEMPER_MAX_FENCES);
	__type(key, u32);
	__type(value, struct temper_mask);
} plan_fences SEC(".maps");

/* Owner of a CPU: slot * TEMPER_MAX_CPUS + cpu -> fence id. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * TEMPER_MAX_CPUS);
	__type(key, u32);
	__type(value, u32);
} plan_cpu_fences SEC(".maps");

/*
 * Generation of the plan in force; its lowest bit is the slot. Written by
 * temper_apply alone. Zero: no plan yet, everybody is in the system tier.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} plan_generation SEC(".maps");

/* No pod is further down; what a container nests below that counts as what is above it. */
#define MAX_CGROUP_DEPTH 24

static __always_inline int level_within_pod(const struct cgroup *cgrp)
{
	return cgrp->level < MAX_CGROUP_DEPTH ? cgrp->level : MAX_CGROUP_DEPTH - 1;
}

static __always_inline u64 current_generation(void)
{
	u32 key = 0;
	u64 *generation = bpf_map_lookup_elem(&plan_generation, &key);

	return generation ? *(volatile u64 *)generation : 0;
}

static __always_inline struct temper_plan_head *plan_head(u64 generation)
{
	u32 key = generation & 1;

	return bpf_map_lookup_elem(&plan_heads, &key);
}

static __always_inline u32 plan_lend(u64 generation)
{
	struct temper_plan_head *head = plan_head(generation);

	return head ? head->lend : TEMPER_LEND_PER_CORE;
}

static __always_inline struct temper_mask *plan_fence(u64 generation, u32 fence)
{
	u32 key = (generation & 1) * TEMPER_MAX_FENCES + fence;

	return bpf_map_lookup_elem(&plan_fences, &key);
}

static __always_inline u32 fence_of_cpu(u64 generation, s32 cpu)
{
	u32 key = (generation & 1) * TEMPER_MAX_CPUS + cpu;
	u32 *fence = bpf_map_lookup_elem(&plan_cpu_fences, &key);

	return fence ? *fence : 0;
}

/* What a cgroup turned out to be: its tier, and the level of its group. */
struct membership {
	u32 tier;
	u32 fence;
	int level; /* of the cgroup whose weight and histogram count */
};

/*
 * Find the nearest ancestor of cgrp that the plan names. Unnamed cgroups are
 * not pods: the system tier, every top-level cgroup a group of its own.
 */
static __noinline int resolve_group(struct cgroup *cgrp, u64 generation, struct membership *m)
{
	struct temper_group_key key = { .slot = generation & 1 };
	int level, i;

	m->tier = TEMPER_SYSTEM;
	m->fence = 0;
	m->level = cgrp->level > 0 ? 1 : 0;
	if (!generation)
		return 0;

	level = level_within_pod(cgrp);
	for_each_num(i, 0, MAX_CGROUP_DEPTH) {
		struct temper_group *group;
		struct cgroup *ancestor;

		if (i > level)
			break;
		ancestor = bpf_cgroup_ancestor(cgrp, level - i);
		if (!ancestor)
			break;
		key.cgroup = ancestor->kn->id;
		bpf_cgroup_release(ancestor);
		group = bpf_map_lookup_elem(&plan_groups, &key);
		if (!group)
			continue;
		m->tier = group->tier < TEMPER_TIERS ? group->tier : TEMPER_SYSTEM;
		m->fence = group->fence;
		m->level = level - i + (group->each_child && i > 0);
		break;
	}
	return 0;
}

#endif
