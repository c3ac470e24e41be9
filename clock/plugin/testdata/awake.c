// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The clock, for a test, on a host as bad as can be: whenever a vCPU halts the vCPUs'
 * thread is taken off its CPU, and QEMU's main loop is awake all the time, where otherwise
 * it sleeps until that thread does. Virtual time must not see it.
 */
#include <pthread.h>

#define CLOCK_STALL_US 50
#define qemu_plugin_install install_clock
#include "../clock.c"
#undef qemu_plugin_install

void qemu_notify_event(void);

static void *wake_main_loop(void *unused)
{
	for (;;) {
		qemu_notify_event();
		usleep(20);
	}
	return unused;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	pthread_t thread;
	int failed = install_clock(id, info, argc, argv);

	return failed ? failed : pthread_create(&thread, NULL, wake_main_loop, NULL);
}
