/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How often the vCPUs executed PAUSE, which has a price of its own. Part of clock.c.
 */
#ifndef CLOCK_PAUSES_H
#define CLOCK_PAUSES_H

#include "qemu.h"

static struct qemu_plugin_scoreboard *pauses;
static uint64_t counted_pauses;

/*
 * PAUSEs executed since the last call. With one thread for all vCPUs QEMU files
 * every count under the vCPU for which the code was translated, so only the sum
 * over all vCPUs is right; what came to it belongs to the vCPU that ran.
 */
static uint64_t new_pauses(int nr_vcpus)
{
	uint64_t sum = 0;

	for (int i = 0; i < nr_vcpus; i++)
		sum += *(uint64_t *)qemu_plugin_scoreboard_find(pauses, i);

	uint64_t fresh = sum - counted_pauses;
	counted_pauses = sum;
	return fresh;
}

static bool is_pause(const struct qemu_plugin_insn *insn)
{
	uint8_t code[2];

	return qemu_plugin_insn_size(insn) == sizeof(code) &&
	       qemu_plugin_insn_data(insn, code, sizeof(code)) == sizeof(code) && code[0] == 0xf3 &&
	       code[1] == 0x90;
}

CALLBACK(count_pauses, struct qemu_plugin_tb *tb)
{
	qemu_plugin_u64 counter = { pauses, 0 };

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (is_pause(insn))
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
				insn, QEMU_PLUGIN_INLINE_ADD_U64, counter, 1);
	}
}

static void watch_pauses(qemu_plugin_id_t id)
{
	pauses = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, count_pauses, NULL);
}

#endif
