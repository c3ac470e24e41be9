/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ABI between the kernel side and internal/sched. Plain structs, explicit
 * widths, enum values written out; the Go side is generated from this file's
 * BTF, so the two cannot drift.
 */
#ifndef TEMPER_INTF_H
#define TEMPER_INTF_H

/* The kernel's names, without its headers: the object does not depend on the host's. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

enum temper_limits {
	TEMPER_MAX_CPUS = 512,
	TEMPER_MASK_WORDS = 8, /* of 64 CPUs */
	TEMPER_MAX_LLCS = 64,
	TEMPER_MAX_FENCES = 256, /* id 0 means "no fence" */
	TEMPER_MAX_GROUPS = 65536, /* both slots together */
	TEMPER_HIST_BUCKETS = 304, /* 8 per power of two, up to 2^40 ns */
	TEMPER_PROBE_GROUPS = 1024, /* measured at once; kubelet's own limit is 110 pods */
	TEMPER_EXIT_TEXT = 256,
	TEMPER_MAX_GATES = 4096, /* cgroups with a CPU limit; 0 is none */
	TEMPER_GATE_DEPTH = 4, /* limits above one another that hold for a thread */
};

/* In rank: a lower number outranks a higher one. Same values as tier.Tier. */
enum temper_tier {
	TEMPER_CRITICAL = 0,
	TEMPER_SYSTEM = 1,
	TEMPER_STANDARD = 2,
	TEMPER_BACKGROUND = 3,
	TEMPER_TIERS = 4,
	TEMPER_NO_TIER = 4, /* idle, another class, or a per-CPU kernel thread */
};

/* Same values as policy.Lend. */
enum temper_lend {
	TEMPER_LEND_PER_CORE = 0,
	TEMPER_LEND_LANDING = 1,
	TEMPER_LEND_WHOLE_LAYER = 2,
};

enum temper_exit_code {
	TEMPER_EXIT_STALE = 0x7e01, /* the dead-man: no heartbeat */
};

/*
 * Where a CPU's time went. sched.Bucket says the same in fewer words: it adds
 * the three lent ones up.
 */
enum temper_bucket {
	TEMPER_TIME_OWN = 0, /* critical threads on their own fence */
	TEMPER_TIME_CRITICAL = 1, /* critical threads elsewhere */
	TEMPER_TIME_SYSTEM = 2, /* per-CPU kernel threads included, wherever they run */
	TEMPER_TIME_STANDARD = 3,
	TEMPER_TIME_BACKGROUND = 4,
	TEMPER_TIME_LENT_SYSTEM = 5, /* lower tiers on a fence */
	TEMPER_TIME_LENT_STANDARD = 6,
	TEMPER_TIME_LENT_BACKGROUND = 7,
	TEMPER_TIME_OTHER = 8, /* stop, deadline and real-time classes */
	TEMPER_TIME_IRQ = 9,
	TEMPER_TIME_IDLE = 10,
	TEMPER_TIME_BUCKETS = 16, /* room: a power of two bounds an index by a mask */
};

struct temper_mask {
	__u64 words[TEMPER_MASK_WORDS];
};

/* Set once, before the load. */
struct temper_cpu_topology {
	__u16 llc;
	__u16 next_sibling; /* the core's threads as a ring; itself without SMT */
};

/*
 * A plan lives in one of two slots; user space fills the one that is not in
 * force and then asks for it by running temper_apply.
 */
struct temper_group_key {
	__u64 cgroup;
	__u32 slot;
	__u32 pad;
};

struct temper_group {
	__u32 tier;
	__u32 fence; /* 0: none */
	__u32 each_child; /* every child cgroup is a group of its own */
	__u32 pad;
};

struct temper_plan_head {
	__u64 generation; /* what this slot will be called */
	struct temper_mask fenced; /* all fences together */
	__u32 lend;
	__u32 nr_fences;
};

struct temper_apply_args {
	__u64 generation; /* of the plan to put in force: the one in force + 1 */
};

struct temper_exit_info {
	__u64 kind; /* enum scx_exit_kind */
	__s64 code;
	__u64 at_ns;
	char reason[TEMPER_EXIT_TEXT];
	char message[TEMPER_EXIT_TEXT];
};

/* What the scheduler counts; one per tier and CPU. */
struct temper_tier_counters {
	__u64 preemptions; /* CPUs taken from a lower tier, or a peer */
	__u64 preempted; /* CPUs lost to a higher one, a peer, or a kernel thread of the CPU */
	__u64 rescued; /* served out of turn, for the starvation bound */
	__u64 worst_wait_ns; /* in a queue, until it ran */
};

/* What temper_set_limit takes. As cpu.max and cpu.max.burst state it; a quota of 0 is no limit. */
struct temper_limit_args {
	__u64 cgroup;
	__u64 quota_us;
	__u64 period_us;
	__u64 burst_us;
};

/* What a limit did to its cgroup. Children with limits of their own count theirs. */
struct temper_pace_counters {
	__u64 used_ns; /* charged to the limit */
	__u64 debt_ns; /* of that, run without tokens: in the kernel, or past a grant's end */
	__u64 waits; /* threads that waited for tokens */
	__u64 waited_ns; /* by all of them together */
	__u64 longest_wait_ns;
	__u64 paced_periods; /* periods of cpu.max in which somebody waited */
	__u64 paced_ns; /* while somebody waited */
	__u64 longest_stop_ns; /* while somebody waited and nobody ran */
};

struct temper_hist {
	__u64 counts[TEMPER_HIST_BUCKETS];
	__u64 sum_ns;
	__u64 max_ns;
};

/* What the probe counts per tier and CPU. CPU time is in the ledger. */
struct temper_tier_delay {
	struct temper_hist wakeup_delay;
	__u64 worst_requeue_ns; /* preempted until it ran again */
	__u64 inversion_ns;
	__u64 inversion_max_ns;
};

/* What the probe counts per group, in a slot that the group keeps while its cgroup lives. */
struct temper_group_delay {
	struct temper_hist wakeup_delay;
	__u64 worst_requeue_ns;
	__u64 cpu_ns; /* interrupts included; the kernel's cpu.stat may leave them out */
	__u64 cgroup;
	__u64 tier;
};

/*
 * A CPU's ledger, written by that CPU alone.
 *
 * The sum of ns[] is always the time from start_ns to the one in state: who
 * reads while the CPU writes finds that it is not, and reads again.
 */
struct temper_cpu_time {
	__u64 ns[TEMPER_TIME_BUCKETS];
	__u64 start_ns; /* 0: not measured */
	__u64 state; /* the bucket in the lowest four bits, above them since when */
	__u64 switched_at; /* when the task that runs here began to */
	__u64 lower_since; /* a tier below critical ran here last from then */
	__u64 lower_until; /* till then; 0: it still does */
	__u32 slot; /* of the group that runs here */
	__u32 context; /* the bucket outside of interrupts */
	__u32 is_lower;
	__u32 irq_depth;
	__u32 fence; /* that this CPU is in, by the plan below */
	__u32 plan; /* the generation's lower half */
};

/* What the probe could not count: in Stats.Events. */
struct temper_probe_misses {
	__u64 tasks; /* no memory to remember a thread */
	__u64 groups; /* more groups than slots */
};

/* The compiler describes only types in use: one pointer for each that Go needs. */
#define TEMPER_EXPORT(kind, name) const kind name *export_##name __attribute__((unused))

_Static_assert(sizeof(struct temper_group_key) == 16, "hash keys have no holes");
_Static_assert(sizeof(struct temper_group) == 16, "ABI");
_Static_assert(sizeof(struct temper_cpu_topology) == 4, "ABI");
_Static_assert(sizeof(struct temper_cpu_time) % 64 == 0, "CPUs share no cache line");
_Static_assert(TEMPER_MASK_WORDS * 64 == TEMPER_MAX_CPUS, "one bit per CPU");

#endif
