// SPDX-License-Identifier: GPL-2.0
/*
 * What the probe computes, for tests: arguments in, result out, through
 * BPF_PROG_RUN. Never part of the product.
 */
#include "intf.h"
#include "kernel.bpf.h"
#include "probe_hist.bpf.h"

char _license[] SEC("license") = "GPL";

struct bucket_args {
	u64 ns;
};

SEC("syscall")
int bucket_of_duration(struct bucket_args *args)
{
	return hist_bucket(args->ns);
}
