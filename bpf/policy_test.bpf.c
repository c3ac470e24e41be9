// SPDX-License-Identifier: GPL-2.0
/*
 * policy.bpf.h, one program per decision, for BPF_PROG_RUN: no scheduler is
 * attached and none is needed in the kernel.
 */
#include "intf.h"
#include "kernel.bpf.h"
#include "policy.bpf.h"

char _license[] SEC("license") = "GPL";

struct policy_call {
	u64 in[4];
	u64 out;
};

#define DECISION(name, expression)                                                      \
	SEC("syscall")                                                                  \
	int decide_##name(struct policy_call *call)                                     \
	{                                                                               \
		u64 a = call->in[0], b = call->in[1], c = call->in[2], d = call->in[3]; \
                                                                                        \
		(void)a, (void)b, (void)c, (void)d;                                     \
		call->out = (expression);                                               \
		return 0;                                                               \
	}

DECISION(may_preempt, may_preempt(a, b))
DECISION(may_lend, may_lend(a, b, c))
DECISION(may_share_core, may_share_core(a, b))
DECISION(vtime_before, vtime_before(a, b))
DECISION(credit_cost, credit_cost(a, b))
DECISION(clamp_vtime, clamp_vtime(a, b, c))
DECISION(credit_of, credit_of(a))
DECISION(yields_to_peers, yields_to_peers(a, b))
DECISION(expected_run, expected_run(a))
DECISION(is_alone, is_alone(a, b))
DECISION(moves_clock, moves_clock(a, b, c))
DECISION(is_behind_peers, is_behind_peers(a, b, c))
DECISION(vtime_cost, vtime_cost(a, b))
DECISION(may_go_on, may_go_on(a, b, c, d))
DECISION(away_tag, away_tag(a, b))
DECISION(is_starving, is_starving(a, b, c))
DECISION(owed_by_rescue, owed_by_rescue(a, b))
DECISION(may_rescue, may_rescue(a, b, c, d))
DECISION(is_stale, is_stale(a, b, c))

/* The bounds that tests and documents name. */
const volatile u64 slice_ns = SLICE_NS;
const volatile u64 wait_bound_ns = WAIT_BOUND_NS;
const volatile u64 tier_starves_ns = TIER_STARVES_NS;
const volatile u64 rescue_after_ns = RESCUE_AFTER_NS;
const volatile u64 rescue_gap_ns = RESCUE_GAP_NS;
