// SPDX-License-Identifier: Apache-2.0

package sched

// The object and its Go types are committed: building Temper needs no clang.
// clang is pinned by its major version, so that the bytes are the same anywhere.
//
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type temper_tier -type temper_lend -type temper_limits -type temper_exit_code -type temper_mask -type temper_cpu_topology -type temper_group_key -type temper_group -type temper_plan_head -type temper_apply_args -type temper_exit_info -type temper_tier_counters -type gate sched ../../bpf/sched.bpf.c -- -O2 -g -Wall -Werror -Wno-unused-function -mcpu=v3
