/* A libcupti without a GPU: the functions that the injected library looks up, over records that a
 * test program hands in. FAKE_CUPTI in the environment makes it misbehave: "rival" (subscribing is
 * refused), "dropped" (each completed buffer reports two dropped records), "old" (CUDA 11), "none"
 * (kernels cannot be traced). */
#ifndef TESTS_INJECT_FAKE_CUPTI_H
#define TESTS_INJECT_FAKE_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies one record into the current buffer, unless its kind is not enabled. Found with dlsym. */
typedef void fake_emit_fn(const void *record, size_t size);
/* Whether a call of this name was enabled, and the number under which its records come. */
typedef bool fake_call_fn(const char *name, uint32_t *callback);

#endif
