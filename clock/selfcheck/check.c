// SPDX-License-Identifier: Apache-2.0
/*
 * A guest of two vCPUs that measures what it can also compute.
 *
 * One instruction is one nanosecond and the time-stamp counter counts nanoseconds
 * (-icount shift=0), so the length of a loop is known exactly. Each line printed to
 * the debug console is "name value"; clock.go knows which values are right. Where
 * something is measured often, the extremes are printed, and all samples go into
 * the digest, which two runs must share.
 */
#include <stdint.h>

enum {
	LOOPS = 1000000,
	PAUSES = 1000,
	NR_EXCHANGES = 400,
	NR_TIMERS = 32,
	NR_WAKES = 32,
	VECTOR = 0x40,
	CODE_SEGMENT = 8,
};

/* Local APIC registers, and the debug devices' ports as given by clock.go. */
enum {
	APIC = 0xfee00000,
	APIC_SPURIOUS = 0xf0,
	APIC_COMMAND = 0x300,
	APIC_DESTINATION = 0x310,
	APIC_TIMER = 0x320,
	APIC_TIMER_COUNT = 0x380,
	APIC_TIMER_DIVIDE = 0x3e0,
	COMMAND_FIXED = 0x4000,
	COMMAND_INIT = 0x4500,
	COMMAND_START = 0x4600,
	DIVIDE_BY_1 = 0xb,
	PORT_CONSOLE = 0xe9,
	PORT_EXIT = 0x501,
	EXIT_CODE = 42,
};

/* What the second CPU is asked to do; it answers by setting it back to IDLE. */
enum task { TASK_NONE, TASK_SPIN, TASK_LOOP, TASK_EXCHANGE, TASK_SEND, TASK_HALT };

struct range {
	int32_t min, max;
};

volatile uint64_t arrived; /* when the last interrupt was taken */
volatile uint32_t has_arrived;
extern void interrupt_entry(void);

static struct {
	uint16_t offset_low, segment, type, offset_high;
} gates[VECTOR + 1];

static volatile enum task task;
static volatile uint32_t second_loop_ns;
static volatile uint32_t turn; /* odd: the second CPU's */
static volatile uint64_t stamp; /* the time when the turn was passed on */
static volatile uint32_t delay; /* of TASK_SEND, in loops */
static uint32_t digest;

static inline uint64_t now(void)
{
	uint32_t low, high;

	asm volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static void apic_write(uint32_t reg, uint32_t value)
{
	*(volatile uint32_t *)(APIC + reg) = value;
}

static void send(uint32_t cpu, uint32_t command)
{
	apic_write(APIC_DESTINATION, cpu << 24);
	apic_write(APIC_COMMAND, command);
}

/* Two instructions a round, four more between the two readings. */
static uint32_t loop(uint32_t rounds)
{
	uint32_t start, end;

	asm volatile("rdtsc\n"
		     "movl %%eax, %0\n"
		     "movl %2, %%ecx\n"
		     "1: decl %%ecx\n"
		     "jnz 1b\n"
		     "rdtsc\n"
		     "movl %%eax, %1\n"
		     : "=&S"(start), "=&D"(end)
		     : "b"(rounds)
		     : "eax", "ecx", "edx", "cc", "memory");
	return end - start;
}

/* Three instructions a round and the price of a PAUSE. */
static uint32_t pause_loop(uint32_t rounds)
{
	uint32_t start, end;

	asm volatile("rdtsc\n"
		     "movl %%eax, %0\n"
		     "movl %2, %%ecx\n"
		     "1: pause\n"
		     "decl %%ecx\n"
		     "jnz 1b\n"
		     "rdtsc\n"
		     "movl %%eax, %1\n"
		     : "=&S"(start), "=&D"(end)
		     : "b"(rounds)
		     : "eax", "ecx", "edx", "cc", "memory");
	return end - start;
}

static void print_char(char c)
{
	asm volatile("outb %0, %1" : : "a"(c), "d"((uint16_t)PORT_CONSOLE));
}

static void print(const char *name, int32_t value)
{
	char digits[12];
	int n = 0;
	uint32_t rest = value < 0 ? -(uint32_t)value : (uint32_t)value;

	while (*name)
		print_char(*name++);
	print_char(' ');
	if (value < 0)
		print_char('-');
	do {
		digits[n++] = '0' + rest % 10;
		rest /= 10;
	} while (rest);
	while (n)
		print_char(digits[--n]);
	print_char('\n');
}

static void add_to_digest(uint32_t value)
{
	digest = (digest ^ value) * 16777619u;
}

static struct range empty_range(void)
{
	return (struct range){ .min = INT32_MAX, .max = INT32_MIN };
}

static void add_sample(struct range *r, int32_t value)
{
	add_to_digest(value);
	if (value < r->min)
		r->min = value;
	if (value > r->max)
		r->max = value;
}

/* The first instruction after STI still runs before an interrupt is taken. */
static void halt_until_interrupt(void)
{
	while (!has_arrived)
		asm volatile("sti\nhlt\ncli" : : : "memory");
	has_arrived = 0;
}

static void enable_interrupts(void)
{
	struct {
		uint16_t limit;
		uint32_t base;
	} __attribute__((packed)) table = { sizeof(gates) - 1, (uint32_t)gates };

	asm volatile("lidt %0" : : "m"(table));
	apic_write(APIC_SPURIOUS, 0x1ff);
}

static void fill_gate(void)
{
	uint32_t entry = (uint32_t)interrupt_entry;

	gates[VECTOR].offset_low = entry;
	gates[VECTOR].offset_high = entry >> 16;
	gates[VECTOR].segment = CODE_SEGMENT;
	gates[VECTOR].type = 0x8e00;
}

static void exchange_second(void)
{
	for (int i = 0; i < NR_EXCHANGES; i++) {
		while (!(turn & 1))
			;
		uint64_t sent = stamp;
		stamp = now();
		second_loop_ns = stamp - sent;
		turn++;
	}
}

/* Exits by the halt in start.S only if the first CPU forgets to end the machine. */
void second_main(void)
{
	enable_interrupts();
	task = TASK_NONE;
	for (;;) {
		switch (task) {
		case TASK_LOOP:
			second_loop_ns = loop(LOOPS);
			break;
		case TASK_EXCHANGE:
			exchange_second();
			break;
		case TASK_SEND:
			loop(delay);
			stamp = now();
			send(0, COMMAND_FIXED | VECTOR);
			break;
		case TASK_HALT:
			halt_until_interrupt();
			break;
		case TASK_SPIN:
			asm volatile("sti" : : : "memory");
			while (!has_arrived)
				;
			asm volatile("cli" : : : "memory");
			has_arrived = 0;
			break;
		case TASK_NONE:
			continue;
		}
		task = TASK_NONE;
	}
}

static void start_second(void)
{
	task = TASK_SPIN;
	send(1, COMMAND_INIT);
	loop(10000);
	send(1, COMMAND_START | 0xf0);
	while (task != TASK_NONE)
		;
}

static void finish_task(void)
{
	while (task != TASK_NONE)
		;
}

/* Both loop at once; the first one's loop is longer and covers the other's. */
static void check_loops(void)
{
	print("beside_busy_ns", loop(LOOPS));
	task = TASK_LOOP;
	loop(2 * LOOPS);
	finish_task();
	print("second_ns", second_loop_ns);
}

/* Time stamps passed to and fro through memory: how far may they disagree? */
static void check_order(void)
{
	struct range to_second = empty_range();
	struct range to_first = empty_range();

	task = TASK_EXCHANGE;
	for (int i = 0; i < NR_EXCHANGES; i++) {
		loop(i * 7 + 1);
		stamp = now();
		turn++;
		while (turn & 1)
			;
		add_sample(&to_second, second_loop_ns);
		add_sample(&to_first, now() - stamp);
	}
	finish_task();
	print("to_second_min_ns", to_second.min);
	print("to_second_max_ns", to_second.max);
	print("to_first_min_ns", to_first.min);
	print("to_first_max_ns", to_first.max);
}

/* A timer's interrupt on a halted CPU comes on time although the other is busy. */
static void check_timer(void)
{
	struct range late = empty_range();

	apic_write(APIC_TIMER_DIVIDE, DIVIDE_BY_1);
	apic_write(APIC_TIMER, VECTOR);
	for (uint32_t i = 0; i < NR_TIMERS; i++) {
		uint32_t count = 20000 + i * 1234;
		uint64_t armed = now();

		apic_write(APIC_TIMER_COUNT, count);
		halt_until_interrupt();
		add_sample(&late, arrived - armed - count);
	}
	print("timer_late_min_ns", late.min);
	print("timer_late_max_ns", late.max);
}

/* The busy second CPU wakes the halted first one. */
static void check_wake(void)
{
	struct range late = empty_range();

	for (int i = 0; i < NR_WAKES; i++) {
		delay = 1000 + i * 777;
		task = TASK_SEND;
		halt_until_interrupt();
		add_sample(&late, arrived - stamp);
		finish_task();
	}
	print("wake_halted_min_ns", late.min);
	print("wake_halted_max_ns", late.max);
}

/* An interrupt for a CPU that spins arrives within the quantum, early or late. */
static void check_interrupt(void)
{
	struct range late = empty_range();

	for (int i = 0; i < NR_WAKES; i++) {
		task = TASK_SPIN;
		loop(1000 + i * 777);
		uint64_t sent = now();
		send(1, COMMAND_FIXED | VECTOR);
		finish_task();
		add_sample(&late, arrived - sent);
	}
	print("interrupt_busy_min_ns", late.min);
	print("interrupt_busy_max_ns", late.max);
}

static void check_halted(void)
{
	task = TASK_HALT;
	loop(100000);
	print("beside_halted_ns", loop(LOOPS));
	print("pauses_ns", pause_loop(PAUSES));
	send(1, COMMAND_FIXED | VECTOR);
	finish_task();
}

void first_main(void)
{
	digest = 2166136261u;
	fill_gate();
	enable_interrupts();
	print("alone_ns", loop(LOOPS));
	start_second();
	check_loops();
	check_halted();
	check_order();
	check_timer();
	check_wake();
	check_interrupt();
	add_to_digest(now());
	print("digest", digest & 0x7fffffff);
	asm volatile("outl %0, %1" : : "a"(EXIT_CODE), "d"((uint16_t)PORT_EXIT));
}
