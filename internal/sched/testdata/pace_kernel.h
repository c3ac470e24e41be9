// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel, as far as the pacer sees it: what bpf/kernel.bpf.h declares, for
 * the machine that compiles the model, and the pacer itself on top of that.
 */
#ifndef PACE_KERNEL_H
#define PACE_KERNEL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef __always_inline
#undef __noinline
#define __always_inline inline __attribute__((always_inline))
#define __noinline static
#define __arg_trusted
#define __arg_nonnull
#define __kptr
#define SEC(name)
#define __uint(name, value) int name
#define __type(name, type) type *name
#define one_copy(var) asm volatile("" : "+r"(var))
#define for_each_num(i, start, end) for ((i) = (start); (i) < (end); (i)++)

#include "intf.h"

typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

enum {
	BPF_ANY,
	BPF_NOEXIST,
	BPF_F_NO_PREALLOC = 0,
	BPF_F_TIMER_CPU_PIN = 0,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	CLOCK_MONOTONIC = 1,
	PF_KTHREAD = 0x00200000,
	PF_EXITING = 0x00000004,
	SCX_ENQ_WAKEUP = 1,
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};

struct bpf_spin_lock {
	u32 held;
};

struct bpf_timer {
	u64 at; /* 0: not armed */
};

struct bpf_task_work {
	u64 opaque;
};

struct bpf_map;

struct cgroup {
	int level;
	struct cgroup *above;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int nr_cpus_allowed;
	const u64 *cpus_ptr;
	u64 cpus_mask;
	unsigned short migration_disabled;
	int pid;
	struct {
		u64 sum_exec_runtime;
	} se;
	struct css_set *cgroups;
};

#define MAX_THREADS 64

/* Who is in a queue when the walk begins. */
struct bpf_iter_scx_dsq {
	struct task_struct *tasks[MAX_THREADS];
	u64 dsq, vtime;
	int nr, next;
};

/* Of tier.bpf.h, idle.bpf.h, queue.bpf.h and stats.bpf.h: there is one tier, and no idle CPU is kicked. */
struct membership {
	u32 tier, fence;
	int level;
};

#define MAX_CGROUP_DEPTH 24
#define level_within_pod(cgrp) ((cgrp)->level)
#define resolve_group(cgrp, generation, m) ((m)->level = 1)
#define current_generation() 1
#define cpu_llc(cpu) 0
#define scx_bpf_task_cpu(p) 0
#define tier_dsq(tier, llc) 0
#define count_queued(tctx, tier, now) ((void)(tier))
#define count_insertion(tier) ((void)(tier))
#define has_own_cpus(p, tier) ((void)(p), false)
#define find_company(tctx, tier, cpu) ((void)(cpu))
#define call_cpu(p) ((void)(p))

static u32 nr_cpus;
static bool has_task_work;
static const bool prog_counts_itself;

/* What pace_model.c does for the pacer. */
static u64 scx_bpf_now(void);
static u64 bpf_ktime_get_ns(void);
static struct task_struct *bpf_get_current_task_btf(void);
static u32 bpf_get_smp_processor_id(void);
static void scx_bpf_kick_cpu(u32 cpu, u64 flags);
static void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
				     u64 flags);
static int want_cpus(struct task_struct *p, u32 tier);
static s32 scx_bpf_dsq_nr_queued(u64 dsq);
static int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq, u64 flags);
static struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it);
static bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
				   u64 flags);
static void *bpf_map_lookup_elem(void *map, const void *key);
static long bpf_map_pop_elem(void *map, u32 *value);
static long bpf_map_push_elem(void *map, const u32 *value, u64 flags);
static void *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags);
static void *bpf_cgrp_storage_get(void *map, struct cgroup *cgrp, void *value, u64 flags);
static long bpf_timer_start(struct bpf_timer *timer, u64 ns, u64 flags);
static int ask_at_return(struct task_struct *p);

#define at_return_to_user(p, work, map, callback) ((void)(work), (void)(callback), ask_at_return(p))
#define scx_bpf_dsq_move_set_vtime(it, v) ((it)->vtime = (v))
#define bpf_iter_scx_dsq_destroy(it) ((void)(it))
#define bpf_rcu_read_lock() ((void)0)
#define bpf_rcu_read_unlock() ((void)0)
#define scx_bpf_create_dsq(dsq, node) 0
#define bpf_map_update_elem(map, key, value, flags) ((void)(value))
#define bpf_map_delete_elem(map, key) ((void)(key))
#define bpf_timer_set_callback(timer, callback) ((void)(callback))
#define bpf_cgroup_release(cgrp) ((void)(cgrp))
#define bpf_kptr_xchg(at, value) __atomic_exchange_n(at, value, __ATOMIC_RELAXED)

static struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level)
{
	while (cgrp && cgrp->level > level)
		cgrp = cgrp->above;
	return cgrp;
}

static int bpf_timer_init(struct bpf_timer *timer, void *map, int clock)
{
	return timer && map && clock ? 0 : -1;
}

static void bpf_spin_lock(struct bpf_spin_lock *lock)
{
	if (lock->held++)
		abort();
}

static void bpf_spin_unlock(struct bpf_spin_lock *lock)
{
	if (--lock->held)
		abort();
}

/* What a CPU does is the model's own. No program is called from another. */
struct cpu_ctx {
	bool releases;
};

static struct cpu_ctx *try_lookup_cpu(s32 cpu)
{
	(void)cpu;
	return NULL;
}

/* dsq.bpf.h's; a queue of the tiers is 0 here. */
static u64 gate_dsq(u32 slot)
{
	return 1ULL << 32 | slot;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include "policy.bpf.h"
#include "bucket.bpf.h"
#include "task.bpf.h"
#include "gate.bpf.h"
#include "leave.bpf.h"
#include "pace.bpf.h"
#include "limit.bpf.h"
#pragma GCC diagnostic pop

#endif
