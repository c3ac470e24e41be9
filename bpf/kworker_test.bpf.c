// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the work of kernel threads that are bound to a CPU take long, for tests: it
 * begins with a loop, which some kernels do not preempt.
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

	if (((struct task_struct *)bpf_get_current_task_btf())->nr_cpus_allowed > 1)
		return 0;
	for_each_num(i, 0, 1 << 20) {
		if (bpf_ktime_get_ns() - began >= WORK_NS)
			break;
	}
	return 0;
}
