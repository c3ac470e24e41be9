/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types, flags and kfuncs that the scheduler uses. Types list
 * only the members that are read; CO-RE finds their place at load time.
 *
 * kfuncs are declared by their exact names: the Go loader knows no flavours.
 * Kernel differences live here and nowhere else.
 */
#ifndef TEMPER_KERNEL_BPF_H
#define TEMPER_KERNEL_BPF_H

#include <stdbool.h>

#include "intf.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#ifndef NULL
#define NULL ((void *)0)
#endif

/*
 * linux/bpf.h cannot be included beside CO-RE types: these are the values of
 * the kernel's user API that the programs need.
 */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_TIMER_CPU_PIN = 1 << 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	CLOCK_MONOTONIC = 1,
};

struct bpf_spin_lock {
	__u32 val;
};

struct bpf_task_work {
	__u64 opaque;
} __attribute__((aligned(8)));

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	__u64 opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#ifndef __kptr
#define __kptr __attribute__((btf_type_tag("kptr")))
#endif

/* Arguments of functions that the verifier checks once, apart from their callers. */
#define __arg_trusted __attribute__((btf_decl_tag("arg:trusted")))
#define __arg_nonnull __attribute__((btf_decl_tag("arg:nonnull")))

/*
 * verifier: the bound of a variable is lost when the compiler keeps a second
 * copy of it; this keeps one.
 */
#define one_copy(var) asm volatile("" : "+r"(var))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct cpumask {
	unsigned long bits[TEMPER_MASK_WORDS];
} cpumask_t;

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
	int level;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

/* v7.2: a kernel that says what a runqueue will run next. */
struct rq___next {
	void *next_class;
};

struct sched_entity {
	u64 sum_exec_runtime;
	unsigned char sched_delayed;
};

struct sched_ext_entity {
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
};

struct sched_class;

struct bpf_map {
	u32 id;
};

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	u8 on_cpu; /* an int up to v6.18: its lowest byte has all it holds */
	u8 on_rq;
	int nr_cpus_allowed;
	const cpumask_t *cpus_ptr;
	cpumask_t cpus_mask;
	unsigned short migration_disabled;
	int pid;
	int prio;
	unsigned int policy;
	struct sched_entity se;
	struct sched_ext_entity scx;
	struct css_set *cgroups;
	char comm[16];
};

struct scx_cpu_release_args;

struct scx_init_task_args {
	bool fork;
};

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us; /* since v6.17 */
	u64 bw_quota_us;
	u64 bw_burst_us;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

#pragma clang attribute pop

/*
 * The ops the scheduler implements. The kernel's own struct has more; the
 * loader matches members by name. timeout_ms, flags and name are set by the
 * loader, which cannot read initialisers.
 */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*update_idle)(s32 cpu, bool idle);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us,
				     u64 burst_us);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

enum {
	PF_KTHREAD = 0x00200000,
	PF_EXITING = 0x00000004,
};

/* What of an enqueue's flags changes from release to release: 1 << 10 on 6.18, 1 << 20 on 7.2. */
enum scx_enq_flags {
	SCX_ENQ_CPU_SELECTED = 1 << 20,
};

/* select_cpu was asked for this wakeup. */
static __always_inline bool was_asked(u64 enq_flags)
{
	return enq_flags & bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_CPU_SELECTED);
}

/* sched_ext's user-visible constants; the same from 6.16 to 7.3. */
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_LOCAL_ON 0xC000000000000000ULL
#define SCX_DSQ_ITER_REV (1ULL << 16)

#define SCX_ENQ_WAKEUP (1ULL << 0)
#define SCX_ENQ_PREEMPT (1ULL << 32)

#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL

#define SCX_TASK_QUEUED 1U

extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
				     u64 enq_flags) __ksym;
extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
extern const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
extern const struct cpumask *scx_bpf_get_idle_smtmask(void) __ksym;
extern void scx_bpf_put_idle_cpumask(const struct cpumask *idle_mask) __ksym;
extern const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
extern void scx_bpf_put_cpumask(const struct cpumask *mask) __ksym;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern u64 scx_bpf_now(void) __ksym;
extern void scx_bpf_exit_bstr(s64 code, char *fmt, unsigned long long *data, u32 data__sz) __ksym;
extern void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym;

extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
extern void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym;
extern void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			     u64 enq_flags) __ksym;
extern bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
				   u64 enq_flags) __ksym;

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

extern struct cgroup *bpf_cgroup_acquire(struct cgroup *cgrp) __ksym;
extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level) __ksym;
extern struct cgroup *bpf_cgroup_from_id(u64 cgid) __ksym;
extern void bpf_cgroup_release(struct cgroup *cgrp) __ksym;
extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) __ksym;
extern bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

/*
 * Work at a thread's return to user mode. v6.18 has it as ..._impl with one
 * argument more; before, there is none.
 */
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw,
					 void *map__map,
					 bpf_task_work_callback_t callback) __ksym __weak;
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map__map, bpf_task_work_callback_t callback,
					      void *aux__prog) __ksym __weak;

/*
 * v7.1: dsq_insert and dsq_move_to_local got a second version. The loader
 * poisons the calls of the version that the kernel lacks, or whose name it
 * cannot resolve because the other is there (internal/sched/compat.go).
 */
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice,
			       u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dsq_insert___v2(struct task_struct *p, u64 dsq_id, u64 slice,
				    u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local___v2(u64 dsq_id, u64 enq_flags) __ksym __weak;

/*
 * Whoever waits in a CPU's own queue goes through enqueue once more, a little later:
 * v7.1. Before, only in its own CPU's, and before v6.19 only from cpu_release, at once.
 */
extern void scx_bpf_dsq_reenq(u64 dsq_id, u64 reenq_flags) __ksym __weak;
extern void scx_bpf_reenqueue_local___v2(void) __ksym __weak;
extern u32 scx_bpf_reenqueue_local(void) __ksym __weak;

/* True where the kernel has the weak kfunc; a constant to the verifier. */
#define ksym_exists(sym) (!!(void *)(sym))

/* A macro: the verifier wants to see the map and the callback themselves. */
#define at_return_to_user(p, work, map, callback)                                                  \
	({                                                                                         \
		int __err;                                                                         \
		if (ksym_exists(bpf_task_work_schedule_resume))                                    \
			__err = bpf_task_work_schedule_resume((p), (work), (map), (callback));     \
		else                                                                               \
			__err = bpf_task_work_schedule_resume_impl((p), (work), (map), (callback), \
								   NULL);                          \
		__err;                                                                             \
	})

static __always_inline void dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	if (ksym_exists(scx_bpf_dsq_insert___v2))
		scx_bpf_dsq_insert___v2(p, dsq_id, slice, enq_flags);
	else
		scx_bpf_dsq_insert(p, dsq_id, slice, enq_flags);
}

static __always_inline bool dsq_move_to_local(u64 dsq_id)
{
	if (ksym_exists(scx_bpf_dsq_move_to_local___v2))
		return scx_bpf_dsq_move_to_local___v2(dsq_id, 0);
	return scx_bpf_dsq_move_to_local(dsq_id);
}

/* From cpu_release, of its CPU. */
static __always_inline void reenqueue_local(s32 cpu)
{
	if (ksym_exists(scx_bpf_dsq_reenq))
		scx_bpf_dsq_reenq(SCX_DSQ_LOCAL_ON | cpu, 0);
	else if (ksym_exists(scx_bpf_reenqueue_local___v2))
		scx_bpf_reenqueue_local___v2();
	else
		scx_bpf_reenqueue_local();
}

/* A loop that the verifier checks once, however often it runs. */
#define for_each_num(i, start, end)                                                   \
	for (struct bpf_iter_num __it __attribute__((cleanup(bpf_iter_num_destroy))), \
	     *__p __attribute__((unused)) = (bpf_iter_num_new(&__it, (start), (end)), \
					     (void)bpf_iter_num_destroy, (void *)0);  \
	     ({                                                                       \
		     int *__n = bpf_iter_num_next(&__it);                             \
		     (__n && ((i) = *__n, (i) >= (start) && (i) < (end)));            \
	     });)

#define SCHED_OP(name, args...) SEC("struct_ops/" #name) BPF_PROG(temper_##name, ##args)
#define SCHED_OP_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(temper_##name, ##args)

#define temper_error(fmt, arg)                                                 \
	({                                                                     \
		static char ____fmt[] = fmt;                                   \
		unsigned long long ____data[] = { (unsigned long long)(arg) }; \
		scx_bpf_error_bstr(____fmt, ____data, sizeof(____data));       \
	})

#endif
