// SPDX-License-Identifier: GPL-2.0
/*
 * Makes what the kernel itself does on a CPU take long, for tests: it begins, or ends, with a loop.
 * Never part of the product.
 */
#include "intf.h"
#include "kernel.bpf.h"

char _license[] SEC("license") = "GPL";

#define WORK_NS (200ULL * 1000)
#define LONG_WORK_NS (1500ULL * 1000)
#define MORE_THAN_A_SLICE_NS (20ULL * 1000 * 1000)
#define MANY_SLICES_NS (200ULL * 1000 * 1000)
#define CHOICE_NS (4ULL * 1000)
#define HOTPLUG_NS (25ULL * 1000 * 1000)

static __always_inline void work(u64 ns)
{
	u64 began = bpf_ktime_get_ns();
	int i;

	for_each_num(i, 0, 1 << 20) {
		if (bpf_ktime_get_ns() - began >= ns)
			break;
	}
}

static __always_inline bool is_pinned(void)
{
	return ((struct task_struct *)bpf_get_current_task_btf())->nr_cpus_allowed == 1;
}

/* A kernel thread that is bound to its CPU: some kernels do not preempt the loop. */
SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(work_for_long, void *item)
{
	if (is_pinned())
		work(WORK_NS);
	return 0;
}

/* The same of CPU 1 alone, until its slice is over. */
SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(work_for_longer, void *item)
{
	if (is_pinned() && bpf_get_smp_processor_id() == 1)
		work(MORE_THAN_A_SLICE_NS);
	return 0;
}

/* And so long that the kernel has another of its threads do the next work meanwhile. */
SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(work_for_longest, void *item)
{
	if (is_pinned() && bpf_get_smp_processor_id() == 1)
		work(MANY_SLICES_NS);
	return 0;
}

static __always_inline bool is_spinner(void)
{
	char name[16] = {};

	return !bpf_get_current_comm(name, sizeof(name)) && name[0] == 's' && name[1] == 'p';
}

/* A softirq, which no kernel preempts, where a spinner runs. */
SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_for_long, unsigned int vec)
{
	if (is_spinner())
		work(WORK_NS);
	return 0;
}

/* The same, and on one CPU for much longer than on the others. */
SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_for_longer, unsigned int vec)
{
	if (is_spinner())
		work(bpf_get_smp_processor_id() ? WORK_NS : LONG_WORK_NS);
	return 0;
}

/* A wakeup, between the choice of a CPU and the insertion there; somebody kicks that CPU meanwhile. */
SEC("fexit/select_task_rq_scx")
int BPF_PROG(choose_for_long, struct task_struct *p, int prev_cpu, int flags, int cpu)
{
	scx_bpf_kick_cpu(cpu, 0);
	work(CHOICE_NS);
	return 0;
}

/* What a CPU does on its way offline: longer than the kernel's own slice of 20 ms. */
SEC("tp_btf/cpuhp_enter")
int BPF_PROG(offline_for_long, unsigned int cpu, int target, int step)
{
	if (target < step && is_pinned())
		work(HOTPLUG_NS);
	return 0;
}
