// SPDX-License-Identifier: Apache-2.0

package sched

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type temper_bucket -type temper_cpu_time -type temper_tier_delay -type temper_group_delay -type temper_probe_misses -type temper_hist probe ../../bpf/probe.bpf.c -- -O2 -g -Wall -Werror -Wno-unused-function -mcpu=v3
