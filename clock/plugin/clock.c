// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A clock per vCPU for QEMU's TCG: a plugin for the distribution's binary.
 *
 * With -icount QEMU runs the vCPUs of a guest in turn on one thread and derives
 * one clock from the instructions all of them executed. Two busy vCPUs therefore
 * see each other's instructions as time: each appears half as fast. This plugin
 * counts for each vCPU apart.
 *
 *   vCPU 0  ──────────────►           time 0
 *   vCPU 1  ─────────────────────►    time 1    ≤ shared + quantum
 *   vCPU 2  (halted)                  stands still, takes part in nothing
 *           ──────────────►           shared = the slowest that is not halted
 *
 * A running vCPU reads its own time. Timers and devices see the shared time, so a
 * timer fires when no busy vCPU is before it, and none ran past it. A halted vCPU
 * that another wakes starts at the waker's time.
 *
 * Invariants:
 *   C1  Time never goes back, neither a vCPU's own nor the shared one.
 *   C2  No vCPU starts a slice that ends after the next timer or, unless all others
 *       are halted, more than a quantum after the shared time.
 *   C3  Every value depends on executed instructions and timers alone, never on
 *       the host's clock: two runs are identical.
 *
 * How: AccelOpsClass holds the functions by which QEMU reads its clock, raises
 * interrupts and asks whether a vCPU is idle; four of them are replaced. When QEMU asks
 * for the time to begin a slice, the vCPUs have their turns before the answer, by
 * functions that it exports (run_in_turn). Of QEMU's structures nothing is assumed
 * but that they contain these pointers (found by value) and CPUState.running
 * (found by letting QEMU set it). A QEMU in which they are not found is refused.
 *
 * Given up: two busy vCPUs that talk through memory or interrupts may disagree
 * about the time by up to a quantum. Snapshots are not supported.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pauses.h"
#include "qemu.h"

#ifndef CLOCK_API
#error "define CLOCK_API: 4 for QEMU 9.1 to 11.0, 7 for 11.1 and later"
#endif

EXPORT int qemu_plugin_version = CLOCK_API;

enum {
	MAX_VCPUS = 256,
	ACCEL_OPS_SLOTS = 64,    /* AccelOpsClass has about 35 pointers */
	CPU_STATE_BYTES = 1 << 17, /* more than CPUState has */
	MAX_SLICE_NS = 1000000,    /* so that QEMU can stop a guest that is never idle */
	MAX_TRIES = 1000,    /* a vCPU that cannot run is QEMU's loop's */
};

enum slice { SLICE_RAN, SLICE_PAUSED, SLICE_STUCK };

struct vcpu {
	CPUState *cpu; /* NULL: not there */
	int64_t time_ns;
	uint64_t nr_insns;
};

/*
 * Options. The quantum bounds the disagreement of two busy vCPUs. PAUSE ends a
 * slice in TCG after very few instructions; without a price of its own a vCPU
 * that spins on a lock hardly advances, and bringing up a second CPU takes
 * minutes. 100 ns is what it costs on recent processors.
 */
static int64_t quantum_ns = 500;
static int64_t pause_ns = 100;
static bool print_stats;

/*
 * All of it is written by the one thread that runs the vCPUs, or by the main loop while
 * that thread sleeps (asleep) and it holds QEMU's big lock. Only shared_ns is read without
 * the lock: it is accessed atomically.
 */
static struct vcpu vcpus[MAX_VCPUS];
static int nr_vcpus;
static struct vcpu *counting; /* whose instructions QEMU's counter counts now */
static int64_t shared_ns;
static int64_t counted; /* QEMU's counter when it was last read */
static int64_t warped_ns; /* what QEMU added to its clock while all were halted */
static size_t running_at; /* offset of CPUState.running */
static void (*raise_interrupt)(CPUState *cpu, int mask);

/*
 * Whose turn it is in run_in_turn, and whether the round has begun: QEMU's loop may go on
 * in the midst of any turn, the first one too, and the shared time waits for its end.
 */
static int turn;
static bool in_round;
/* run_in_turn is at work: it sets the lengths of slices. */
static bool in_turns;
/* It has been at work since QEMU's loop last looked after its timers. */
static bool turns_done;

/* The vCPUs' thread sleeps until one of them has work. Changes under QEMU's big lock. */
static bool asleep;

#define OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
/* Reading the next timer's distance reads the clock: that call gets shared_ns. */
OF_THREAD bool in_timer_query;
/* It is not QEMU that asks whether a vCPU is idle. */
OF_THREAD bool in_idle_query;
/* This is the thread that runs the vCPUs. */
OF_THREAD bool runs_vcpus;

static struct {
	uint64_t slices, wakes;
	int64_t max_skew_ns;
} stats;

static int64_t shared_time(void)
{
	return __atomic_load_n(&shared_ns, __ATOMIC_RELAXED);
}

static void set_shared_time(int64_t ns)
{
	__atomic_store_n(&shared_ns, ns, __ATOMIC_RELAXED);
}

/* In tests the vCPUs' thread stalls where another thread of QEMU could come between. */
static void stall(void)
{
#ifdef CLOCK_STALL_US
	usleep(CLOCK_STALL_US);
#endif
}

static bool is_running(CPUState *cpu)
{
	return __atomic_load_n((uint8_t *)cpu + running_at, __ATOMIC_RELAXED);
}

static struct vcpu *find_vcpu(CPUState *cpu)
{
	if (counting && counting->cpu == cpu)
		return counting;
	for (int i = 0; i < nr_vcpus; i++)
		if (vcpus[i].cpu == cpu)
			return &vcpus[i];
	return NULL;
}

static bool is_idle(CPUState *cpu)
{
	in_idle_query = true;
	bool idle = cpu_thread_is_idle(cpu);
	in_idle_query = false;
	return idle;
}

static bool all_idle(void)
{
	for (int i = 0; i < nr_vcpus; i++)
		if (vcpus[i].cpu && !is_idle(vcpus[i].cpu))
			return false;
	return true;
}

/* Credits what ran since the last call to the vCPU that ran it. */
static void account(void)
{
	int64_t now = icount_get_raw();
	int64_t fresh = now - counted;

	counted = now;
	if (!counting) {
		set_shared_time(shared_time() + icount_to_ns(fresh));
		return;
	}
	counting->nr_insns += fresh;
	counting->time_ns += icount_to_ns(fresh);
	counting->time_ns += new_pauses(nr_vcpus) * pause_ns;
}

/* When all vCPUs are halted QEMU jumps to the next timer: follow it. */
static void follow_warp(void)
{
	int64_t warped = icount_get() - icount_to_ns(icount_get_raw());

	set_shared_time(shared_time() + warped - warped_ns);
	warped_ns = warped;
}

/* The slowest busy vCPU's time, -1: none. One that was woken begins at the shared time. */
static int64_t slowest_busy(void)
{
	int64_t now = shared_time();
	int64_t slowest = -1;
	int64_t fastest = now;

	for (int i = 0; i < nr_vcpus; i++) {
		struct vcpu *v = &vcpus[i];

		if (!v->cpu || is_idle(v->cpu))
			continue;
		if (v->time_ns < now)
			v->time_ns = now;
		if (slowest < 0 || v->time_ns < slowest)
			slowest = v->time_ns;
		if (v->time_ns > fastest)
			fastest = v->time_ns;
	}
	if (slowest >= 0 && fastest - slowest > stats.max_skew_ns)
		stats.max_skew_ns = fastest - slowest;
	return slowest;
}

/* Shared time is the slowest busy vCPU's; when all are halted, the fastest one's. */
static void advance_shared_time(void)
{
	int64_t time = slowest_busy();

	if (time < 0) {
		time = shared_time();
		for (int i = 0; i < nr_vcpus; i++)
			if (vcpus[i].cpu && vcpus[i].time_ns > time)
				time = vcpus[i].time_ns;
	}
	set_shared_time(time);
}

/* Distance of the next timer from the shared time; negative: there is none. */
static int64_t next_timer(void)
{
	in_timer_query = true;
	int64_t ns = qemu_clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL, -1);
	in_timer_query = false;
	return ns;
}

/*
 * Runs a slice of at most so long. When another thread of QEMU has asked the vCPU to exit,
 * a try may execute nothing but serve that request. The next try is made here: QEMU's loop
 * would take interrupts and start-up messages when it enters the vCPU, at a moment of the
 * host's.
 */
static enum slice run_slice(struct vcpu *v, int64_t ns)
{
	int64_t insn_ns = icount_to_ns(1);
	uint64_t insns = v->nr_insns;
	uint64_t pauses = counted_pauses;

	for (int tries = 0; v->nr_insns == insns && !is_idle(v->cpu); tries++) {
		if (tries == MAX_TRIES || !cpu_work_list_empty(v->cpu))
			return SLICE_STUCK;
		counting = v;
		current_cpu = v->cpu;
		icount_prepare_for_run(v->cpu, (ns + insn_ns - 1) / insn_ns);
		int why = tcg_cpu_exec(v->cpu);
		if (is_idle(v->cpu))
			stall();
		icount_process_data(v->cpu);
		account();
		if (why == EXCP_ATOMIC)
			cpu_exec_step_atomic(v->cpu);
		stats.slices++;
	}
	return counted_pauses == pauses ? SLICE_RAN : SLICE_PAUSED;
}

static bool is_alone(const struct vcpu *v)
{
	for (int i = 0; i < nr_vcpus; i++)
		if (&vcpus[i] != v && vcpus[i].cpu && !is_idle(vcpus[i].cpu))
			return false;
	return true;
}

/*
 * How long a vCPU may run now. Without company it may run until the next timer: there
 * is no other clock to disagree with, and its slice ends when it wakes another.
 */
static int64_t slice_length(const struct vcpu *v)
{
	int64_t now = shared_time();
	int64_t timer = next_timer();
	int64_t room = now + (is_alone(v) ? MAX_SLICE_NS : quantum_ns) - v->time_ns;
	int64_t until_timer = now + timer - v->time_ns;

	return timer >= 0 && until_timer < room ? until_timer : room;
}

/*
 * Moves the shared time to the slowest busy vCPU's. False: there is none, or a timer is due
 * then. To a timer the time comes in QEMU's loop only, which serves it before it unlocks.
 */
static bool begin_round(void)
{
	int64_t slowest = slowest_busy();
	int64_t timer = next_timer();

	if (slowest < 0 || timer == 0 || (timer > 0 && slowest >= shared_time() + timer))
		return false;
	set_shared_time(slowest);
	turn = 0;
	in_round = true;
	return true;
}

/*
 * A turn lasts until the vCPU's time has come to its end, it halts or it pauses: all of
 * which the guest decides. Whatever else ends a slice, such as another thread of QEMU at
 * some moment of the host's, does not end the turn. False: QEMU's loop has to go on.
 */
static bool take_turn(struct vcpu *v)
{
	while (v->cpu && !is_idle(v->cpu)) {
		int64_t ns;

		if (!cpu_can_run(v->cpu) || !cpu_work_list_empty(v->cpu))
			return false;
		if (v->time_ns < shared_time())
			v->time_ns = shared_time();
		ns = slice_length(v);
		if (ns <= 0)
			break;
		switch (run_slice(v, ns)) {
		case SLICE_RAN:
			break;
		case SLICE_PAUSED:
			return true;
		case SLICE_STUCK:
			return false;
		}
	}
	return true;
}

/*
 * Runs the busy vCPUs in turn until a timer is due, none is left, or QEMU has
 * something else to do. QEMU's loop, from which this is called, would do the same: but
 * it takes its locks and looks for timers several times in each turn, and it enters the
 * halted vCPUs, all of which takes several times as long as the instructions of a
 * quantum.
 *
 * Always to run the slowest, up to a quantum beyond the next slowest, would need half as
 * many turns. But then turns follow from who woke whom, and of two vCPUs that hand work
 * to and fro the same one would come first within the quantum every time.
 */
static void run_in_turn(void)
{
	CPUState *caller = current_cpu;

	in_turns = true;
	while ((in_round || begin_round()) && take_turn(&vcpus[turn])) {
		turn++;
		in_round = turn < nr_vcpus;
	}
	current_cpu = caller;
	in_turns = false;
}

/*
 * QEMU is about to run this vCPU and asks for the time to find out for how long: the
 * slice is the distance from the answer to the next timer. All vCPUs have their turns
 * before the answer; then the slice is empty. It is sent back by an exit request, a halted
 * vCPU too, which the main loop may wake meanwhile: a slice of 0 would do so too, but QEMU
 * takes it as an expired timer and interrupts every vCPU. It is of 1 ns because QEMU
 * accounts all of it when the vCPU takes an INIT.
 */
static int64_t slice_start(struct vcpu *v)
{
	int64_t timer;

	if (in_turns) /* the length is in run_slice's hands */
		return shared_time();
	if (!turns_done) {
		turns_done = true;
		run_in_turn();
	}
	counting = v; /* who pays if it takes an INIT */
	cpu_exit(v->cpu);
	timer = next_timer();
	stall();
	return timer > 0 ? shared_time() + timer - 1 : shared_time();
}

/* Not on behalf of a vCPU: the main loop, or QEMU before there are vCPUs. */
static int64_t time_outside(void)
{
	if (bql_locked() && asleep && all_idle()) {
		in_round = false;
		advance_shared_time();
		follow_warp();
	}
	return shared_time();
}

/*
 * QEMU asks whether a vCPU that is halted is idle. With all of them idle its main loop moves
 * the time to the next timer, whenever the host lets it come between. Before the vCPUs'
 * thread sleeps that is too early: the last slice may not be accounted for yet, and a timer
 * that the thread stops before it sleeps would go on. It is a timer of QEMU's that ends all
 * turns every 100 ms: when it was started must not depend on the host. So the other threads
 * hear that a vCPU is idle when that thread has heard so of all: it holds the big lock from
 * there until it sleeps.
 */
static bool clock_idle(CPUState *cpu)
{
	if (in_idle_query)
		return true;
	if (runs_vcpus)
		asleep = all_idle();
	return runs_vcpus || asleep;
}

/* Replaces icount_get as the answer to "what is the virtual time?". */
static int64_t clock_read(void)
{
	CPUState *cpu = current_cpu;
	struct vcpu *v;

	if (in_timer_query)
		return shared_time();
	v = cpu ? find_vcpu(cpu) : NULL;
	if (!v)
		return time_outside();

	account();
	if (is_running(cpu)) /* the guest reads a counter or programs a device */
		return v->time_ns > shared_time() ? v->time_ns : shared_time();
	if (!bql_locked()) /* only the preparation of a slice runs without the lock */
		return slice_start(v);

	runs_vcpus = true; /* between QEMU's turns: timers run now */
	asleep = false;
	turns_done = false;
	if (!in_round)
		advance_shared_time();
	follow_warp();
	return shared_time();
}

/* A halted vCPU starts at the waker's time, whose slice ends: it may have had no company. */
static void clock_interrupt(CPUState *cpu, int mask)
{
	struct vcpu *v = find_vcpu(cpu);
	bool wakes = v && is_idle(cpu);
	int64_t now = wakes ? clock_read() : 0;

	raise_interrupt(cpu, mask);
	if (!wakes)
		return;
	stats.wakes++;
	if (now > v->time_ns)
		v->time_ns = now;
	if (current_cpu && is_running(current_cpu))
		cpu_exit(current_cpu);
}

/*
 * Replaces cpu_thread_is_idle, handle_interrupt, get_virtual_clock and get_elapsed_ticks,
 * which lie in this order. The last three hold these values only for TCG with one thread
 * and -icount; the first is empty then and comes after kick_vcpu_thread.
 */
static bool hook_accelerator(void)
{
	void **ops = cpus_get_accel();
	int idles = 0;
	int interrupts = 0;
	int clocks = 0;

	for (int i = 0; ops && i < ACCEL_OPS_SLOTS && clocks < 2; i++) {
		if (ops[i] == (void *)rr_kick_vcpu_thread && !ops[i + 1]) {
			ops[i + 1] = (void *)clock_idle;
			idles++;
		} else if (ops[i] == (void *)icount_handle_interrupt && !interrupts) {
			raise_interrupt = icount_handle_interrupt;
			ops[i] = (void *)clock_interrupt;
			interrupts++;
		} else if (ops[i] == (void *)icount_get) {
			ops[i] = (void *)clock_read;
			clocks++;
		}
	}
	return idles == 1 && interrupts == 1 && clocks == 2;
}

static void start_clock(void)
{
	if (!hook_accelerator()) {
		fprintf(stderr, "clock: accelerator table not recognised: "
				"needs -accel tcg,thread=single -icount shift=N\n");
		exit(EXIT_FAILURE);
	}
	counted = icount_get_raw();
	set_shared_time(icount_get());
	warped_ns = shared_time() - icount_to_ns(counted);
}

/* Before the first instruction, when the accelerator has been set up. */
CALLBACK(vcpu_appears, unsigned int index)
{
	if (index >= MAX_VCPUS) {
		fprintf(stderr, "clock: vCPU %u: only %d are supported\n", index, MAX_VCPUS);
		exit(EXIT_FAILURE);
	}
	if (!raise_interrupt)
		start_clock();
	vcpus[index].cpu = qemu_get_cpu(index);
	if ((int)index >= nr_vcpus)
		nr_vcpus = index + 1;
}

CALLBACK(vcpu_disappears, unsigned int index)
{
	vcpus[index].cpu = NULL;
}

CALLBACK_VOID(at_exit)
{
	if (!print_stats)
		return;
	fprintf(stderr,
		"clock: virtual_ns=%" PRId64 " max_skew_ns=%" PRId64 " slices=%" PRIu64
		" wakes=%" PRIu64 " pauses=%" PRIu64 " insns=",
		shared_time(), stats.max_skew_ns, stats.slices, stats.wakes, counted_pauses);
	for (int i = 0; i < nr_vcpus; i++)
		fprintf(stderr, "%s%" PRIu64, i ? "," : "", vcpus[i].nr_insns);
	fputc('\n', stderr);
}

/* QEMU sets CPUState.running of a blank CPU: the byte that changes is the one. */
static bool find_running_flag(void)
{
	uint8_t *blank = calloc(1, CPU_STATE_BYTES);
	int nr_changed = 0;

	if (!blank)
		return false;
	cpu_exec_start((CPUState *)blank);
	for (size_t i = 0; i < CPU_STATE_BYTES; i++) {
		if (blank[i]) {
			running_at = i;
			nr_changed++;
		}
	}
	free(blank);
	return nr_changed == 1;
}

static bool parse_ns(const char *text, int64_t min, int64_t *ns)
{
	char *end;

	*ns = strtoll(text, &end, 10);
	return end != text && !*end && *ns >= min && *ns <= 1000000;
}

static bool parse_option(const char *option)
{
	if (!strncmp(option, "quantum=", 8))
		return parse_ns(option + 8, 1, &quantum_ns);
	if (!strncmp(option, "pause=", 6))
		return parse_ns(option + 6, 0, &pause_ns);
	if (!strcmp(option, "stats=on"))
		return print_stats = true;
	return false;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (!parse_option(argv[i])) {
			fprintf(stderr, "clock: option %s: want quantum=NS, pause=NS or stats=on\n",
				argv[i]);
			return -1;
		}
	}
	if (!find_running_flag()) {
		fprintf(stderr, "clock: CPUState.running not found in this QEMU\n");
		return -1;
	}
	watch_pauses(id);
	qemu_plugin_register_vcpu_init_cb(id, vcpu_appears, NULL);
	qemu_plugin_register_vcpu_exit_cb(id, vcpu_disappears, NULL);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return 0;
}
