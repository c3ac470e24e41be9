// SPDX-License-Identifier: Apache-2.0

package sched

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types kworkertest ../../bpf/kworker_test.bpf.c -- -O2 -g -Wall -Werror -Wno-unused-function -mcpu=v3
