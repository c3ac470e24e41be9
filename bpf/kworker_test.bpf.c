// SPDX-License-Identifier: GPL-2.0
/*
 * Makes all work of kernel threads take long, for tests: it begins with a loop.
 * Never part of the product.
 */
#include "intf.h"
#include "kernel.bpf.h"

char _license[] SEC("license") = "GPL";

#define WORK_NS (200ULL * 1000)

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(work_for_long, void *work)
{
	u64 began = bpf_ktime_get_ns();
	int i;

	for_each_num(i, 0, 1 << 20) {
		if (bpf_ktime_get_ns() - began >= WORK_NS)
			break;
	}
	return 0;
}
