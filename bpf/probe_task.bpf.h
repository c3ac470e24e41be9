/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the probe remembers of a thread, and where its group's delays are.
 */
#ifndef TEMPER_PROBE_TASK_BPF_H
#define TEMPER_PROBE_TASK_BPF_H

/* No group: not measured yet, or more groups than slots. Fails every lookup. */
#define NO_SLOT TEMPER_PROBE_GROUPS

struct probe_task {
	u64 waits_since; /* runnable since then, WOKEN in its lowest bit; 0: it does not wait */
	u64 generation; /* of the plan that the rest was read from */
	u64 cgroup; /* that it lived in then */
	u32 tier;
	u32 fence;
	u32 slot;
	u32 pad;
};

#define WOKEN 1ULL

/* Threads: task storage. Created when first seen, dies with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct probe_task);
} probe_tasks SEC(".maps");

/*
 * Slots of groups: slot -> delays and CPU time. Written by any CPU, atomically;
 * read by internal/sched.Probe. An array, because a hash costs a hundred
 * instructions at each switch. Zeroed when the group's cgroup dies.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TEMPER_PROBE_GROUPS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct temper_group_delay);
} group_delays SEC(".maps");

/*
 * Directory of the slots: cgroup id -> slot. Written when a group is first seen
 * and when its cgroup dies.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TEMPER_PROBE_GROUPS);
	__type(key, u64);
	__type(value, u32);
} group_slots SEC(".maps");

/* Slots that no group has. Filled by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, TEMPER_PROBE_GROUPS);
	__type(value, u32);
} free_slots SEC(".maps");

/* One entry. Written by any CPU, atomically; read by internal/sched.Probe. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct temper_probe_misses);
} probe_misses SEC(".maps");

static __always_inline struct temper_probe_misses *lookup_misses(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&probe_misses, &key);
}

static __always_inline struct temper_group_delay *try_lookup_slot(u32 slot)
{
	return bpf_map_lookup_elem(&group_delays, &slot);
}

/* The slot of a group, given one if it has none. */
static __noinline u32 slot_of(u64 cgroup, u32 tier)
{
	struct temper_group_delay *group;
	struct temper_probe_misses *misses;
	u32 slot, *known;

	known = bpf_map_lookup_elem(&group_slots, &cgroup);
	if (!known) {
		if (bpf_map_pop_elem(&free_slots, &slot)) {
			misses = lookup_misses();
			if (misses)
				__sync_fetch_and_add(&misses->groups, 1);
			return NO_SLOT;
		}
		if (bpf_map_update_elem(&group_slots, &cgroup, &slot, BPF_NOEXIST))
			/* Another CPU met the group at the same time. */
			bpf_map_push_elem(&free_slots, &slot, BPF_ANY);
		known = bpf_map_lookup_elem(&group_slots, &cgroup);
		if (!known)
			return NO_SLOT;
	}
	slot = *known;
	group = try_lookup_slot(slot);
	if (!group)
		return NO_SLOT;
	group->tier = tier;
	group->cgroup = cgroup;
	return slot;
}

/* The cgroup is gone and nobody can be in it: its slot is free for another. */
static __always_inline void forget_group(u64 cgroup)
{
	u32 *known = bpf_map_lookup_elem(&group_slots, &cgroup);
	struct temper_group_delay *group;
	volatile u64 *word;
	u32 slot;
	int i;

	if (!known)
		return;
	slot = *known;
	group = try_lookup_slot(slot);
	if (!group || bpf_map_delete_elem(&group_slots, &cgroup))
		return;
	/* Volatile, or clang makes it a call of memset. */
	word = (volatile u64 *)group;
	for (i = 0; i < sizeof(*group) / sizeof(*word); i++)
		word[i] = 0;
	bpf_map_push_elem(&free_slots, &slot, BPF_ANY);
}

/* Find out anew what p belongs to: the plan changed, or p moved. */
static __noinline void refresh_probe_task(struct cgroup *cgrp, struct probe_task *t, u64 generation)
{
	struct membership m;
	struct cgroup *group;
	u64 id = 0;

	resolve_group(cgrp, generation, &m);
	group = bpf_cgroup_ancestor(cgrp, m.level);
	if (group) {
		id = group->kn->id;
		bpf_cgroup_release(group);
	}
	t->tier = m.tier;
	t->fence = m.fence;
	t->slot = slot_of(id, m.tier);
	t->generation = generation;
	t->cgroup = cgrp->kn->id;
}

/*
 * The thread's entry, true to the plan in force. Its cgroup is compared by id:
 * the address of a css_set may come back.
 */
static __always_inline struct probe_task *lookup_member(struct task_struct *p)
{
	u64 generation = current_generation();
	struct temper_probe_misses *misses;
	struct probe_task *t;
	struct cgroup *cgrp;

	t = bpf_task_storage_get(&probe_tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		misses = lookup_misses();
		if (misses)
			__sync_fetch_and_add(&misses->tasks, 1);
		return NULL;
	}
	cgrp = p->cgroups->dfl_cgrp;
	if (t->generation != generation || t->cgroup != cgrp->kn->id)
		refresh_probe_task(cgrp, t, generation);
	return t;
}

#endif
