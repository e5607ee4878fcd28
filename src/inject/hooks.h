/* Level `launch`: stands between a program and the CUDA driver.
 *
 * The library is preloaded. Programs get the driver's functions in three ways, and each leads to
 * this file: by dlsym, which is overridden for a few names of the driver and hands everything else
 * on; by cuGetProcAddress, which the CUDA runtime asks for all it uses and which dlsym gave it; and
 * by linking, where a preloaded library's symbols come before libcuda's. */
#ifndef INJECT_HOOKS_H
#define INJECT_HOOKS_H

#include <stdbool.h>
#include <stddef.h>

#include "inject/launches.h"

/* Whether this process is to be recorded at level `launch`. By inject.c: looks at the environment
 * once, without starting anything. */
bool inject_counts_launches(void);
/* Starts recording, once: with the program's first call and not before, because what is registered
 * for the exit has to run before the CUDA runtime's own. By inject.c. */
void inject_start_launches(void);

/* The driver's own functions, past the hooks. False with one line in `why`. */
bool hooks_driver(struct driver *driver, char *why, size_t why_size);

#endif
