// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin for a test: a thread that asks vCPUs to exit at moments of the host's, as
 * threads of QEMU do now and then; here all the time. Virtual time must not see it.
 */
#include <pthread.h>

#include "../qemu.h"

EXPORT int qemu_plugin_version = CLOCK_API;

static int nr_vcpus;

static void *disturb(void *unused)
{
	for (;;) {
		for (volatile int n = 0; n < 2000; n++)
			;
		for (int i = 0; i < __atomic_load_n(&nr_vcpus, __ATOMIC_ACQUIRE); i++)
			cpu_exit(qemu_get_cpu(i));
	}
	return unused;
}

CALLBACK(vcpu_appears, unsigned int index)
{
	pthread_t thread;

	if (!index)
		pthread_create(&thread, NULL, disturb, NULL);
	__atomic_store_n(&nr_vcpus, index + 1, __ATOMIC_RELEASE);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	qemu_plugin_register_vcpu_init_cb(id, vcpu_appears, NULL);
	return 0;
}
