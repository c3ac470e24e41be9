// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The clock, and a trace of the guest's kernel: which functions ran, when and on which
 * vCPU, and which tasks they were about.
 *
 * To look changes nothing. The guest executes the same instructions at the same virtual
 * times as with the clock alone, so that what a trace shows is what happened when nobody
 * looked: a rerun of the same seed, with the same digests.
 *
 * The option trace=FILE says what to look for, one line each:
 *
 *   out FILE              the trace
 *   task STATE PID COMM   where these lie in struct task_struct, in bytes
 *   at ADDRESS TASKS NAME a function; how many of its first arguments, 0 to 2, are tasks
 *
 * A line of the trace is a call, with a task's pid, state and comm last: comm may have
 * blanks.
 *
 *   NS VCPU NAME [\t PID STATE COMM]...
 *
 * The time is that of the vCPU when its slice began: up to a quantum early beside other
 * busy vCPUs, and where all others are halted as early as the last timer or wakeup.
 */
#define qemu_plugin_install install_clock
#include "clock.c"
#undef qemu_plugin_install

#if CLOCK_API >= 7
#error "trace: written for QEMU 9.2 to 11.0"
#endif

enum {
	MAX_POINTS = 256,
	MAX_TASKS = 2,
	COMM_BYTES = 16,
	NAME_BYTES = 64,
	CB_READS_REGISTERS = 1,
};

/* glib's, as the plugin API has them. */
struct byte_array {
	uint8_t *data;
	unsigned int len;
};
struct array {
	void *data;
	unsigned int len;
};
struct byte_array *g_byte_array_new(void);
void g_byte_array_set_size(struct byte_array *, unsigned int);

struct reg {
	void *handle;
	const char *name;
	const char *feature;
};
struct array *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(void *handle, struct byte_array *);
bool qemu_plugin_read_memory_vaddr(uint64_t address, struct byte_array *, size_t len);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
					    void (*)(unsigned int, void *), int, void *);

static struct point {
	uint64_t address;
	int tasks;
	char name[NAME_BYTES];
} points[MAX_POINTS];
static int nr_points;
static struct {
	long state, pid, comm;
} offsets;
static FILE *trace;
static void *arguments[MAX_TASKS]; /* registers */
static struct byte_array *buffer;

static bool find_arguments(void)
{
	static const char *const names[MAX_TASKS] = { "rdi", "rsi" };
	struct array *all = qemu_plugin_get_registers();
	struct reg *regs = all->data;

	for (unsigned int i = 0; i < all->len; i++)
		for (int n = 0; n < MAX_TASKS; n++)
			if (!strcmp(regs[i].name, names[n]))
				arguments[n] = regs[i].handle;
	buffer = g_byte_array_new();
	return arguments[0] && arguments[1];
}

static uint64_t argument(int n)
{
	uint64_t value = 0;

	g_byte_array_set_size(buffer, 0);
	qemu_plugin_read_register(arguments[n], buffer);
	if (buffer->len >= sizeof(value))
		memcpy(&value, buffer->data, sizeof(value));
	return value;
}

static bool read_guest(uint64_t address, void *to, size_t len)
{
	g_byte_array_set_size(buffer, 0);
	if (!qemu_plugin_read_memory_vaddr(address, buffer, len) || buffer->len < len)
		return false;
	memcpy(to, buffer->data, len);
	return true;
}

static void write_task(uint64_t task)
{
	char comm[COMM_BYTES + 1] = "";
	uint32_t state = 0;
	int32_t pid = -1;

	if (!read_guest(task + offsets.pid, &pid, sizeof(pid)) ||
	    !read_guest(task + offsets.state, &state, sizeof(state)) ||
	    !read_guest(task + offsets.comm, comm, COMM_BYTES))
		strcpy(comm, "?");
	for (char *c = comm; *c; c++)
		if (*c < ' ')
			*c = '?';
	fprintf(trace, "\t%" PRId32 " %" PRIu32 " %s", pid, state, comm);
}

static void called(unsigned int vcpu, void *data)
{
	const struct point *p = data;

	/* vcpu is the one for which the code was translated: with one thread it says nothing. */
	(void)vcpu;
	if (!counting)
		return;
	if (!buffer && !find_arguments()) {
		fprintf(stderr, "trace: registers rdi and rsi not found\n");
		exit(EXIT_FAILURE);
	}
	fprintf(trace, "%" PRId64 " %d %s", counting->time_ns, (int)(counting - vcpus), p->name);
	for (int n = 0; n < p->tasks; n++)
		write_task(argument(n));
	fputc('\n', trace);
}

CALLBACK(look_for_points, struct qemu_plugin_tb *tb)
{
	count_pauses(id, tb);
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);

		for (int n = 0; n < nr_points; n++)
			if (points[n].address == address)
				qemu_plugin_register_vcpu_insn_exec_cb(
					insn, called, CB_READS_REGISTERS, &points[n]);
	}
}

CALLBACK_VOID(end_trace)
{
	if (fclose(trace))
		perror("trace: write");
	at_exit(id, user);
}

static bool read_line(const char *line)
{
	char path[4096];
	struct point p;

	if (sscanf(line, "out %4095[^\n]", path) == 1)
		return (trace = fopen(path, "w"));
	if (sscanf(line, "task %ld %ld %ld", &offsets.state, &offsets.pid, &offsets.comm) == 3)
		return true;
	if (sscanf(line, "at %" SCNx64 " %d %63s", &p.address, &p.tasks, p.name) != 3 ||
	    p.tasks < 0 || p.tasks > MAX_TASKS || nr_points == MAX_POINTS)
		return false;
	points[nr_points++] = p;
	return true;
}

static bool read_points(const char *path)
{
	char line[4200];
	FILE *f = fopen(path, "r");
	bool ok = f;

	while (ok && fgets(line, sizeof(line), f)) {
		ok = read_line(line);
		if (!ok)
			fprintf(stderr, "trace: %s: %s", path, line);
	}
	if (f)
		fclose(f);
	return ok && trace && nr_points;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (argc < 1 || strncmp(argv[0], "trace=", 6) || !read_points(argv[0] + 6)) {
		fprintf(stderr,
			"trace: want trace=FILE, of lines out, task and at, as the first option\n");
		return -1;
	}
	if (install_clock(id, info, argc - 1, argv + 1))
		return -1;
	/* In place of the clock's own: one plugin has one of each. */
	qemu_plugin_register_vcpu_tb_trans_cb(id, look_for_points, NULL);
	qemu_plugin_register_atexit_cb(id, end_trace, NULL);
	return 0;
}
