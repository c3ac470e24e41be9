/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From power-on to check.c: a 64 KiB firmware image, so that no other firmware runs.
 *
 * The image is mapped twice, below 4 GiB, where the first CPU starts, and at
 * 0xf0000, where it is linked and where the second CPU starts: its start-up message
 * names page 0xf0. Both enter 32-bit mode with flat segments.
 */
	.section .entry, "ax"
	.code16

second_cpu:
	movl	$second_stack, %esp
	movl	$second_main, %edi
	jmp	enter_32bit

	.globl	first_cpu
first_cpu:
	movl	$first_stack, %esp
	movl	$first_main, %edi

enter_32bit:
	cli
	movw	%cs, %ax
	movw	%ax, %ds
	lgdtl	gdt_pointer - second_cpu
	movl	%cr0, %eax
	orl	$1, %eax
	movl	%eax, %cr0
	ljmpl	$8, $in_32bit

	.code32
in_32bit:
	movw	$16, %ax
	movw	%ax, %ds
	movw	%ax, %es
	movw	%ax, %ss
	call	*%edi
1:	hlt
	jmp	1b

/*
 * The only interrupt. What is measured is when it arrives, so the time is read
 * first; then the local APIC is told that it was served.
 */
	.globl	interrupt_entry
interrupt_entry:
	pushl	%eax
	pushl	%edx
	rdtsc
	movl	%eax, arrived
	movl	%edx, arrived + 4
	movl	$1, has_arrived
	movl	$0, 0xfee000b0
	popl	%edx
	popl	%eax
	iret

	.balign	8
gdt:
	.quad	0
	.quad	0x00cf9b000000ffff	/* 8: code */
	.quad	0x00cf93000000ffff	/* 16: data */
gdt_pointer:
	.word	. - gdt - 1
	.long	gdt

	.section .reset, "ax"
	.code16
	ljmpw	$0xf000, $first_cpu_offset

	.section .note.GNU-stack, "", @progbits
