/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What clock.c uses of QEMU, declared here so that the plugin builds on a host
 * without QEMU's headers.
 *
 * The first part is the public plugin API. The second part are functions inside
 * QEMU which its binary exports because it loads modules; their signatures are
 * the same from QEMU 9.1 to 11.1. No structure is declared: what clock.c needs of
 * one it finds by value (see find_running_flag and hook_accelerator).
 */
#ifndef CLOCK_QEMU_H
#define CLOCK_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The plugin API. */

/*
 * API version 7 (QEMU 11.1) took the plugin's id out of the callbacks and gave
 * them a user pointer. The registration functions are called with a user
 * pointer in both: the older ones do not look at the additional argument.
 */
#if CLOCK_API >= 7
#define CALLBACK(name, arg) static void name(arg, void *user)
#define CALLBACK_VOID(name) static void name(void *user)
#define CALLBACK_TYPE(arg) void (*)(arg, void *)
#define CALLBACK_VOID_TYPE void (*)(void *)
#else
#define CALLBACK(name, arg) static void name(qemu_plugin_id_t id, arg)
#define CALLBACK_VOID(name) static void name(qemu_plugin_id_t id, void *user)
#define CALLBACK_TYPE(arg) void (*)(qemu_plugin_id_t, arg)
#define CALLBACK_VOID_TYPE void (*)(qemu_plugin_id_t, void *)
#endif

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;

typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

enum { QEMU_PLUGIN_INLINE_ADD_U64 = 0 };

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t, CALLBACK_TYPE(unsigned int), void *);
void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t, CALLBACK_TYPE(unsigned int), void *);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, CALLBACK_TYPE(struct qemu_plugin_tb *),
					   void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, CALLBACK_VOID_TYPE, void *);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *, int,
							 qemu_plugin_u64, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *, unsigned int);

/* Inside QEMU. */

typedef struct CPUState CPUState;

enum { QEMU_CLOCK_VIRTUAL = 1, EXCP_ATOMIC = 0x10005 };

extern __thread CPUState *current_cpu;

CPUState *qemu_get_cpu(int index);
bool cpu_thread_is_idle(CPUState *cpu);
void cpu_exec_start(CPUState *cpu);
void cpu_exit(CPUState *cpu);
bool cpu_can_run(CPUState *cpu);
bool cpu_work_list_empty(CPUState *cpu);
void cpu_exec_step_atomic(CPUState *cpu);
int tcg_cpu_exec(CPUState *cpu);

void *cpus_get_accel(void);
void rr_kick_vcpu_thread(CPUState *cpu);
bool bql_locked(void);
void icount_handle_interrupt(CPUState *cpu, int mask);
int64_t icount_get(void);
int64_t icount_get_raw(void);
int64_t icount_to_ns(int64_t icount);
void icount_prepare_for_run(CPUState *cpu, int64_t budget);
void icount_process_data(CPUState *cpu);
int64_t qemu_clock_deadline_ns_all(int type, int attr_mask);

#endif
